"""Layer 3: systems as data. A recipe names its stages; a suite names its attacks."""

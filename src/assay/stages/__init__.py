"""Layer 2: what is done to a target, one idea a file, each a function registered by its name."""

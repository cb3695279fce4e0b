"""Layer 4: the loops that work stages: fuzz, evaluate, train."""

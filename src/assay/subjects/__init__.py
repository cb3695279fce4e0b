"""Layer 1: what is tested. Targets, where they come from, data sets, and a zoo of nets."""

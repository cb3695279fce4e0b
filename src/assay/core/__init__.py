"""Layer 0: cases, names, randomness, norms, losses, images, run folders. Knows no model and no data set."""

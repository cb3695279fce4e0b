"""Nets by name. Each takes the input shape and the number of classes; small inputs are padded where it pools often."""

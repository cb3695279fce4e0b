"""Surprise: how unlike the training data a trace (the values of neurons) is; plain tensors in, one number a trace out.

Each file fits one measure to training traces (M, W) with their groups (M,), which are the classes the target predicts,
and gives a function of traces (N, W) and groups (N,) that returns float64 (N,), infinite where a group has no trace.
"""

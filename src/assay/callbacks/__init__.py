"""Callbacks for other people's training loops: robustness measured between epochs, the training left as it was."""

"""References of kernels/training."""

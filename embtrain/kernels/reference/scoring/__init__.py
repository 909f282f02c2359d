"""References of kernels/scoring."""

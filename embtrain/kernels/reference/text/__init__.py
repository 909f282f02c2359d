"""References of kernels/text."""

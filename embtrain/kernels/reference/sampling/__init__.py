"""References of kernels/sampling."""

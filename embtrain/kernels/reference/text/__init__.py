"""References of kernels/text.

    scan.py     bytes to word types and ids
    windows.py  subsampling, permutations and skip-gram windows
"""

"""Wrappers that read text.

    scan     bytes to word types and ids
    windows  subsampling, permutations and skip-gram windows
"""

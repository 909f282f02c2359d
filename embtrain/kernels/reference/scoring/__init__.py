"""References of kernels/scoring.

    gathered_dot.py  dot products with gathered rows
    row_products.py  norms and dot products of two tables, row by row
    ranking.py       counts of better and equal candidates
    bessel.py        the von Mises-Fisher normalizer
"""

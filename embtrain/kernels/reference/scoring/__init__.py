"""References of kernels/scoring.

    gathered_dot.py    dot products with gathered rows
    table_products.py  dot products with every row
    row_products.py    norms and dot products of two tables, row by row
    ranking.py         counts of better and equal candidates
    softmax_ranks.py   the same counts and the log-softmax, from scores
    bessel.py          the von Mises-Fisher normalizer
"""

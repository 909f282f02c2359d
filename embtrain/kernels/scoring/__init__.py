"""Wrappers that score candidates.

    gathered_dot    dot products with gathered rows, and gradients
    table_products  dot products with every row
    row_products    norms and dot products of two tables, row by row
    ranking         counts of better and equal candidates
    softmax_ranks   the same counts and the log-softmax, from scores
    bessel          the von Mises-Fisher normalizer
"""

"""Wrappers that draw negatives, and their tables.

    alias       a fixed categorical
    cells       a cell, then a candidate in it
    tree_walk   leaf nodes of a tree of sums
    tree_draw   candidates through a tree, from queries in one call
    tree_sums   recomputes the sums of a tree
    generator   the adversarial generator: draws, densities, rows of logits
    reinforce   REINFORCE factors and gradients
    int8_rows   quantized rows
"""

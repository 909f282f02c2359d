"""References of kernels/sampling.

    alias.py      a fixed categorical
    cells.py      a cell, then a candidate in it
    tree_walk.py  leaf nodes of a tree of sums
    tree_draw.py  candidates through a tree
    tree_sums.py  the sums of a tree
    generator.py  the adversarial generator: draws, densities, rows of logits
    reinforce.py  REINFORCE factors and gradients
    int8_rows.py  quantized rows
"""

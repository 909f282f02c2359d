"""The triples update on a device.

    update.py      wrapper: records, checks, the launch
    units.py       kernel: the queries that share a draw, or one query, by one program
    vectors.py     device functions: q, scores, their gradients, the constraint of entities
    row_losses.py  device function: losses and slopes of queries with their negatives

The oracle is kernels/reference/training/triples.py.
"""

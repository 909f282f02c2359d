"""The update of order embeddings on a device.

    update.py      wrapper: records, checks, the launch
    units.py       kernel: a concept with its target and its negatives, by one program

The oracle is kernels/reference/training/order.py.
"""

"""Sources whose q approximates the model's softmax.

exp        the softmax itself
resampled  sampling-importance-resampling from a pool
mixture    a defensive mixture of a source and a static distribution
cells      first a cell of candidates, then a candidate inside it
kernels    in proportion to a kernel, through a tree of sums
"""

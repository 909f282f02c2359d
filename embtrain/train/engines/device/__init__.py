"""Training steps on a GPU, through the Triton kernels of kernels/device.

limits.py    reasons against the kernels on a GPU
base.py      DeviceStep: blocks that threads read ahead; negatives as tensors
windows.py   skip-gram
triples.py   TransE and DistMult
pairs.py     order embeddings
"""

"""Kernels for a GPU, in Triton, and their wrappers over PyTorch tensors. The first two need no Triton.

    support.py        whether Triton is installed; sizes that the kernels take
    arguments.py      tables and drawn negatives as tensors; checks
    alias.py          draws from an alias table
    distances.py      l1 and complex distances of all pairs, and their gradients
    skipgram.py       wrapper of the skip-gram update: records, checks, launches
    private_draws.py  kernel: each pair has its own negatives
    shared_draws.py   kernel: the pairs of a window, or of several, share their negatives
    triples/, pairs/  the updates of TransE and DistMult, and of order embeddings
    row_updates.py, slopes.py  device functions: rates, atomic updates of rows; losses

The oracles are the kernels and references of sampling/alias.py and training/. Triton's interpreter (TRITON_INTERPRET=1,
read when a kernel is defined) runs all of them on tensors of the CPU, one program after the other.
"""

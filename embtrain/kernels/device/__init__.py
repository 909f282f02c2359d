"""Kernels for a GPU, in Triton, and their wrappers over PyTorch tensors.

    support.py         whether Triton is installed; sizes that the kernels take
    arguments.py       tables and drawn negatives as tensors; checks
    alias.py           draws from an alias table
    skipgram.py        wrapper of the skip-gram update: records, checks, launches
    private_draws.py   kernel: each pair has its own negatives
    shared_draws.py    kernel: the pairs of a window, or of several, share their negatives
    row_updates.py     device functions: rates, atomic updates of rows
    slopes.py          device functions: the losses
    triples/           the update of TransE and DistMult

Only modules of this folder import Triton; support.py and arguments.py alone may be imported without it. The oracles are
the kernels and references of sampling/alias.py, training/skipgram.py and training/triples.py. Triton's interpreter
(TRITON_INTERPRET=1, read when a kernel is defined) runs all of them on the CPU, one program after the other.
"""

"""References of kernels/training.

    skipgram.py  windows of words
    triples.py   TransE and DistMult
    order.py     order embeddings
"""

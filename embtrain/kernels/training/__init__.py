"""Wrappers that update embedding tables.

    skipgram  windows of words
    triples   TransE and DistMult
    order     order embeddings
"""

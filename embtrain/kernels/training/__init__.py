"""Wrappers that update embedding tables.

    skipgram  windows of words
    triples   TransE and DistMult
    order     order embeddings
    adasum    moves of rows by several processes, put together
"""

"""Wrappers that update embedding tables.

    skipgram    windows of words
    triples     TransE and DistMult
    order       order embeddings
    hyperbolic  Poincaré embeddings, entailment cones, shadow cones
    adasum      moves of rows by several processes, put together
"""

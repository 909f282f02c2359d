"""References of kernels/training.

    skipgram.py    windows of words
    triples.py     TransE and DistMult
    order.py       order embeddings
    hyperbolic.py  Poincaré embeddings, entailment cones, shadow cones
    rows.py        terms of a row's negatives, update of a row; shared by the others
    adasum.py      moves of rows by several processes, put together
"""

"""References of kernels/training.

    skipgram.py  windows of words
    triples.py   TransE and DistMult
    order.py     order embeddings
    rows.py      terms of a row's negatives, update of a row; shared by the three
    adasum.py    moves of rows by several processes, put together
"""

"""Losses with hinges: a pair costs nothing once its score is good enough.

margin.py           margin ranking loss: the positive against each negative
order.py            loss of order embeddings: positives against 0, negatives against a margin
hinged_softmax.py   contrastive loss of shadow cones: a softmax over the same two hinges
"""

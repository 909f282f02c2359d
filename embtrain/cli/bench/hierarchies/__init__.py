"""Benchmarks of hierarchies.

order.py      an epoch of order embeddings, against torch
hierarchy.py  Poincaré embeddings, against gensim and torch
"""

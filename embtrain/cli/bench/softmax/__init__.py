"""Benchmarks of samplers of the softmax.

samplers.py  draws, against the exact softmax
kernels.py   errors of feature maps of kernels
kmeans.py    clusters of candidates, against scikit-learn and faiss
"""

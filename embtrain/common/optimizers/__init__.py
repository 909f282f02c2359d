"""Optimizers of tables and adversaries.

eager.py       PyTorch's optimizers without the imports of its compiler
row_growth.py  copies rows, and the state of an optimizer, into larger tables
"""

"""Evaluation of word vectors.

gold.py        reads benchmark files
similarity.py  rank correlation with human similarity
analogy.py     a is to b as c is to d
neighbours.py  nearest neighbours and their PMI
hubness.py     rows that are near to all others
alignment.py   rotate a table onto another; words whose use differs
"""

"""Models of knowledge graphs: score triples (head, relation, tail).

base.py      queries, contexts and regularization shared by these models
transe.py    TransE: translation
transd.py    TransD: translation after a projection per relation
distmult.py  DistMult: bilinear, diagonal
complex.py   ComplEx: bilinear, diagonal and complex
rotate.py    RotatE: rotation of complex dimensions
"""

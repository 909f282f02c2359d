"""Documents with several labels each (extreme classification).

    sparse.py         `Csr`, `Documents`, `LabelsConfig`; splits into train, valid and test
    examples.py       loads files through the cache; training batches of (document, label)
    xc_repository.py  the Extreme Classification repository's format, and multi-label svmlight
    arff.py           ARFF as Mulan and MEKA write it
    dense.py          a class and all features on each line
    synthetic.py      synthetic documents with many, mostly rare labels
    documents.py      a user's documents, to predict their labels or to evaluate a model
"""

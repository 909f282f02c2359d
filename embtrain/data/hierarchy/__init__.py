"""Hierarchies of concepts as pairs (hyponym, hypernym): WordNet, pair files and published splits.

    files.py         reads pair files and published splits
    wordnet.py       reads WordNet's database files
    wordnet_yaml.py  reads the YAML source of Open English WordNet
    closure.py       transitive closure, transitive reduction, cycle check
    splits.py        the protocols clean, legacy and given: training pairs, held-out pairs, negatives
    shares.py        training pairs of a share that a published split lacks
    examples.py      `PairsConfig`, `load`, training batches
    store.py         a hierarchy and its split as arrays, for the cache
    senses.py        the concepts that a word can mean
    query_names.py   queries as a file of candidates names them; concepts by end of a pair
    own_pairs.py     a user's test file, in the concepts of a trained hierarchy
"""

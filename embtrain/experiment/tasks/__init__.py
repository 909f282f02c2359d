"""Tasks: one file for each kind of data, found by walking this package.

    base.py         `Task`, the base class; lookup by name, model or settings; the corpus of a run
    windows.py      skip-gram windows of text          walks.py     the same over random walks of a graph
    contexts.py     windows of text for CBOW
    language.py     next-word prediction               labels.py    documents with labels
    triples.py      link prediction in a graph         pairs.py     hypernym prediction in a hierarchy
    parent_text.py  words and counts of the run that another run continues
    texts.py        the files and the reader of a run's text
    task_lists.py   lists of candidates that a task offers to sources
    translation.py  translation of sentences       translate_words.py  translations of word ids, for it
"""

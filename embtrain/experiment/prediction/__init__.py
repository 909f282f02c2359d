"""Predictions of trained models: one file for each task.

    predict.py      entry points: queries from a command line, a file, standard input or Python
    base.py         `Predictor`, `LinePredictor`, `Prediction`, `Answer`
    words.py        context words of a word, the word of a context, neighbours on walks of a node
    language.py     next words                         labels.py       labels of documents
    triples.py      link prediction                    pairs.py        hypernyms and hyponyms
    translation.py  translations of lines              translator.py   the same for a stream or a file
    query_words.py  the words of a query, split and joined like the training text
"""

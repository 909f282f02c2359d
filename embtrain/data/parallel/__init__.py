"""Parallel text for translation: pairs of sentences in two languages.

    corpus.py         `ParallelConfig`, `ParallelCorpus`: ids, vocabularies, held-out parts, the cache
    batches.py        `SentencePairs`, `TranslationBatch`: blocks of sentences of similar length
    files.py          reads two-file corpora, mark-up and tables
    tokenize.py       reversible tokenizer
    pieces.py         detects and joins BPE, SentencePiece and WordPiece pieces
    synthetic.py      synthetic sentence pairs from two small grammars
    own_test_set.py   a user's test set, in the vocabularies of a trained run
"""

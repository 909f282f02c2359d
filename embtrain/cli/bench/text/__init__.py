"""Benchmarks of a text: reading it, skip-gram and CBOW, judging.

reading.py    from a file of words to ids
skipgram.py   an epoch, against gensim
quality.py    its quality over seeds
subword.py    an epoch with subwords, against fastText and gensim
rare.py       quality with subwords over seeds, against gensim
budget.py     quality at equal CPU time, with chosen settings, against gensim
ppmi.py       quality at the CPU time of PPMI-SVD
judging.py    ranks of held-out pairs, against matrix products
conflicts.py  writes of one row by several threads, counted
group.py      quality, bytes and seconds of one run on several processes
"""

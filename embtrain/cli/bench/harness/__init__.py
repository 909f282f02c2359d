"""Parts shared by the benchmarks: rounds with rivals, differences, lower bounds, the text of skip-gram, classes.

base.py     the rounds of a benchmark: embtrain and its rivals in turn, ratios, the line of JSON
paired.py   the difference of embtrain and a rival over seeds
bounds.py   lower bounds of the time of skip-gram on this machine
words.py    the text of skip-gram benchmarks, and one training run of each program on it
cooccurrences.py  word vectors by counting: PPMI-SVD
remedies.py  what the options of a bench can change, added to errors
planted.py  classes with planted vectors, and a problem of classification
"""

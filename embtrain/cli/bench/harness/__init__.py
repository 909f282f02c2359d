"""Parts shared by the benchmarks: rounds with rivals, lower bounds, the text of skip-gram.

base.py    the rounds of a benchmark: embtrain and its rivals in turn, ratios, the line of JSON
bounds.py  lower bounds of the time of skip-gram on this machine
words.py   the text of skip-gram benchmarks, and one training run of each program on it
"""

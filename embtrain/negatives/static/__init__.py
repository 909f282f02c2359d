"""Sources whose q is one distribution, the same for every query.

base         `StaticSource`: draws with and without replacement
uniform      q = 1 / V
log_uniform  Zipfian in the frequency rank
unigram      counts to a power
"""

"""Models: encode a batch into queries, score candidates, and export vectors.

base.py           Model, its declarations; names, find
products.py, distances.py  scores, shared by models
rounding.py       scores that tie up to rounding
tables.py         parameter tables, in memory or in files
result_checks.py, query_checks.py  checks of models of other packages
output_table.py   initial output embedding table: random, or from a file
words/            skip-gram, CBOW and node2vec
lm.py             LSTM language model
xc.py             linear model for extreme classification
hierarchies/      models of hierarchies: order embeddings and cones
triples/          models of knowledge graphs
nmt/              encoder-decoders that predict word vectors
"""

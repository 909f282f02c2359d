"""Models: encode a batch into queries, score candidates, and export vectors.

base.py          Model, its declarations; names, find
products.py, distances.py  scores, shared by models
output_table.py  initial output embedding table: random, or from a file
start.py         starting values of skip-gram's tables, by word
skipgram.py      skip-gram for text
subword.py       word vectors pooled from character n-grams, for skip-gram
node2vec.py      the same for random walks
lm.py            LSTM language model
xc.py            linear model for extreme classification
hierarchies/     models of hierarchies: order embeddings and cones
triples/         models of knowledge graphs
nmt/             encoder-decoders that predict word vectors
"""

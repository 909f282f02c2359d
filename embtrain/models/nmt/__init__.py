"""Neural machine translation that predicts word vectors.

model.py        Nmt: source and target embeddings, output layer, scores
network.py      Net, the interface of an encoder-decoder, attention and initialization
recurrent.py    LSTMs with attention
transformer.py  a small Transformer
"""

"""Models of words, or of nodes on walks, that share their two tables.

skipgram.py  skip-gram for text: from a word to the words around it
cbow.py      continuous bag of words: from the words around a word to the word
node2vec.py  skip-gram for random walks
subword.py   word vectors pooled from character n-grams
start.py     starting values by word
"""

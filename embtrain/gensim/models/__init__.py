"""The counterpart of gensim.models.

word2vec.py  Word2Vec, and gensim's readers of sentences
"""

from gensim.models import KeyedVectors

from embtrain.gensim.models.word2vec import Word2Vec

__all__ = ["KeyedVectors", "Word2Vec"]

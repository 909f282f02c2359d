"""The counterpart of gensim.models.

word2vec.py  Word2Vec, and gensim's readers of sentences
fasttext.py  FastText, and models of fastText
"""

from typing import Any

from gensim.models import KeyedVectors

from embtrain.gensim.models.fasttext import FastText
from embtrain.gensim.models.word2vec import Word2Vec
from embtrain.gensim.theirs import get_name, names_for_star

__all__ = ["FastText", "KeyedVectors", "Word2Vec", *names_for_star("gensim.models")]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    return get_name("gensim.models", name)

"""gensim's Word2Vec and FastText, trained by embtrain: put `embtrain.` in front of the import.

models/        the modules of gensim.models that have a class here
arguments.py   the arguments of both classes as settings of a run
sentences.py   sentences and corpus files as word ids on disk
frequencies.py  the counts that build_vocab_from_freq takes
calls.py       one call of `train`, its callbacks and what they change
training.py    epochs of one call of `train`
saved.py       the file of `save` and `load`
vectors.py     KeyedVectors that are filled from a file or emptied
attributes.py  attributes that are checked, or have the strategy's value until the user sets them
values.py      checks of single values: numbers, integers, paths
rollback.py    a model is restored if one of its methods raises an error
theirs.py      the names and modules of gensim that have no counterpart here
errors.py      errors that are also ValueError, TypeError or FileNotFoundError, as gensim raises them
"""

from typing import Any

from embtrain.gensim import models
from embtrain.gensim.models.fasttext import FastText
from embtrain.gensim.models.word2vec import Word2Vec
from embtrain.gensim.theirs import add_finder, get_name, names_for_star

__all__ = ["FastText", "Word2Vec", "models", *names_for_star("gensim")]  # noqa: PLE0604

add_finder()


def __getattr__(name: str) -> Any:
    return get_name("gensim", name)

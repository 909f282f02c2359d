"""Tables of a model: their shapes, and KeyedVectors that are filled from a file."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gensim.models import KeyedVectors, Word2Vec as GensimWord2Vec

from embtrain.gensim.errors import ArgumentError, ArgumentTypeError
from embtrain.gensim.values import as_whole


def add_words(wv: KeyedVectors, words: Sequence[Any], counts: np.ndarray, vectors: np.ndarray,
              ngrams: np.ndarray | None) -> None:
    """Fill empty vectors. counts: (V,). vectors: (V, D). ngrams: (B, D) of FastTextKeyedVectors; None: of others."""
    wv.add_vectors(words, vectors)
    wv.expandos["count"] = counts.copy()
    if ngrams is not None:
        wv.vectors_vocab, wv.vectors_ngrams = vectors, ngrams
        wv.recalc_char_ngram_buckets()
        wv.adjust_vectors()


def remove_words(wv: KeyedVectors, tables: Iterable[str]) -> None:
    """Remove words, attributes of words and tables: gensim's code sorts and reuses rows of an earlier vocabulary."""
    wv.index_to_key, wv.key_to_index, wv.expandos = [], {}, {}
    for name in {"vectors", *tables}:
        setattr(wv, name, np.zeros((0, wv.vector_size), np.float32))


def with_rows(table: np.ndarray, n_rows: int) -> np.ndarray:
    """Return an array of n_rows rows: the first rows of `table`, and zeros for those that it lacks."""
    if len(table) == n_rows:
        return table
    table = np.asarray(table)
    return np.concatenate([table[:n_rows], np.zeros((max(0, n_rows - len(table)), *table.shape[1:]), table.dtype)])


def resize_attributes(wv: KeyedVectors) -> None:
    """Give each attribute of words a row for each word: gensim's code resizes arrays of one axis only."""
    wv.expandos = {name: with_rows(values, len(wv)) for name, values in wv.expandos.items()}


def word_counts(wv: KeyedVectors) -> np.ndarray:
    """Return the count of each word, (V,) int64; 1 for words that have none, as after wv.add_vectors.

    ArgumentTypeError for counts that are not numbers, ArgumentError for those that are negative, not whole or too
    large, and for those that are not one number for each word.
    get_vecattr would take integer words for positions.
    """
    label = 'wv.expandos["count"]'
    try:
        given = np.asarray(wv.expandos.get("count", ()))
    except ValueError as error:
        raise ArgumentError(f"{label}: items of different lengths: should be ({len(wv)},), a count for each word"
                            ) from error
    if given.ndim != 1:
        raise ArgumentError(f"{label}: shape {given.shape}: should be ({len(wv)},), a count for each word")
    given = given[:len(wv)]
    unchecked = given[given < 0] if given.dtype == np.int64 else given  # quick for counts of gensim's code
    for count in unchecked.tolist():
        as_whole(label, count, np.int64, 0)
    counts = np.ones(len(wv), np.int64)
    counts[:len(given)] = given
    if counts.sum(dtype=np.float64) >= 2**63:
        raise ArgumentError(f"{label}: the counts add up to more than {2**63 - 1:,}, the maximum")
    return counts


def word_attributes(wv: KeyedVectors) -> dict[str, np.ndarray]:
    """Return copies of the attributes of words as arrays, counts as int64: gensim's code resizes nothing else.

    Raises the errors of word_counts, and ArgumentTypeError for another attribute that is not an array.
    """
    for name, values in wv.expandos.items():
        if name != "count" and not (isinstance(values, np.ndarray) and values.ndim):
            raise ArgumentTypeError(f"wv.expandos[{name!r:.60}]: should be an array with an entry for each word, got a "
                                    f"{type(values).__name__}")
    return {name: word_counts(wv) if name == "count" else values.copy() for name, values in wv.expandos.items()}


def with_copied_words(other_model: object) -> GensimWord2Vec:
    """Return a shallow copy of a model whose words and their attributes are copies.

    gensim's reset_from shares them: an update of one model would damage the other, and a model that is reset from
    itself would lose its words. ArgumentTypeError for an argument that is not a model, ArgumentError for one without a
    vocabulary, and the errors of word_attributes.
    """
    if not isinstance(other_model, GensimWord2Vec):
        raise ArgumentTypeError(f"other_model: should be a Word2Vec, got a {type(other_model).__name__}")
    if not len(other_model.wv):
        raise ArgumentError("other_model: has no vocabulary; call its build_vocab first")
    copied = copy.copy(other_model)
    copied.wv = wv = copy.copy(other_model.wv)
    wv.index_to_key, wv.key_to_index = list(wv.index_to_key), dict(wv.key_to_index)
    wv.expandos = word_attributes(wv)
    resize_attributes(wv)
    return copied


def check_shapes(tables: Mapping[str, tuple[Any, int]], n_words: int, dim: int) -> None:
    """Raise ArgumentError for a table that does not fit the vocabulary, as after wv.add_vectors.

    tables: by name, with their numbers of rows.
    """
    for name, (table, n) in tables.items():
        if (shape := np.shape(table)) != (n, dim):
            lacks_words = n == n_words and shape[1:] == (dim,) and shape[0] < n
            remedy = "add words with build_vocab(..., update=True)" if lacks_words else "set an array of this shape"
            raise ArgumentError(f"{name}: shape {shape}: should be ({n}, {dim}), rows and vector_size; {remedy}")

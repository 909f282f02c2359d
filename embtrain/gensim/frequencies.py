"""The counts of a vocabulary, of build_vocab_from_freq or of `raw_vocab`, checked before gensim's code uses them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from gensim.models import KeyedVectors
from gensim.utils import RULE_DISCARD, RULE_KEEP, keep_vocab_item

from embtrain.gensim.errors import ArgumentError, ArgumentTypeError
from embtrain.gensim.values import as_whole, wrong_type
from embtrain.gensim.vectors import word_counts

Rule = Callable[..., int]
_END = 2**63  # of int64


def with_checked_counts(method: Callable[..., None]) -> Callable[..., None]:
    """Return build_vocab_from_freq of a model that first checks the counts.

    ArgumentTypeError for others than numbers, ArgumentError for fractions, negative counts and those that _checked_rule
    refuses.
    """
    @functools.wraps(method)
    def counting(self: Any, word_freq: Mapping[Hashable, int], keep_raw_vocab: bool = False,
                 corpus_count: int | None = None, trim_rule: Rule | None = None, update: bool = False) -> None:
        counts = _whole_counts("word_freq", word_freq)
        rule = _checked_rule("word_freq", trim_rule, self.wv if update else None)
        method(self, counts, keep_raw_vocab, corpus_count, rule, update)
        if keep_raw_vocab:
            self.raw_vocab = word_freq

    return counting


@contextmanager
def checked_raw_vocab(model: Any, trim_rule: Rule | None, update: bool, is_kept: bool) -> Iterator[Rule]:
    """Replace `raw_vocab` of a model, while gensim's code reads it, with checked counts as numbers of Python.

    Yields a rule that decides like `trim_rule` and min_count. is_kept: whether the model keeps `raw_vocab` afterwards.
    Raises the errors of _whole_counts and _checked_rule.
    """
    given = model.raw_vocab
    model.raw_vocab = _whole_counts("raw_vocab", given)
    yield _checked_rule("raw_vocab", trim_rule, model.wv if update else None)
    if is_kept:
        model.raw_vocab = given


def _whole_counts(name: str, counts: Any) -> dict[Hashable, int]:
    """Return counts as numbers of Python: gensim's code refuses to mix types, and cannot count on in float32.

    name: of the counts. Raises the errors of as_whole, and ArgumentTypeError for counts that are not a mapping.
    """
    if not isinstance(counts, Mapping):
        raise ArgumentTypeError(wrong_type(name, counts, "a mapping from words to counts"))
    return {word: _whole(name, word, count) for word, count in counts.items()}


def _whole(name: str, word: Hashable, count: Any) -> int:
    """Return a count as a number of Python. Raises the errors of as_whole."""
    is_whole = type(count) is int and 0 <= count < _END
    return count if is_whole else as_whole(f"{name}[{word!r:.60}]", count, np.int64, 0)


def _checked_rule(name: str, trim_rule: Rule | None, wv: KeyedVectors | None) -> Rule:
    """Return a rule that decides like `trim_rule` and min_count, for one pass of gensim's code over counts.

    name: of the counts. wv: vectors whose words they are added to, even if the rule drops a word; or None. Raises the
    errors of word_counts; the rule raises ArgumentError for a kept word of count 0, because gensim's code divides by
    it, and for counts of the vocabulary whose sum int64 cannot hold.
    """
    words, total = ({}, 0) if wv is None else (wv.key_to_index, int(word_counts(wv).sum()))

    def decide(word: Hashable, count: int, min_count: float) -> int:
        nonlocal total
        is_kept = keep_vocab_item(word, count, min_count, trim_rule)
        if is_kept and not count:
            raise ArgumentError(f"{name}[{word!r:.60}]=0: should be 1 or more for a word that is kept; set "
                                "min_count=1, or remove the word")
        total += count if is_kept or word in words else 0
        if total >= _END:
            raise ArgumentError(f"{name}: the counts of the vocabulary add up to more than {_END - 1:,}, the maximum; "
                                "set smaller counts")
        return RULE_KEEP if is_kept else RULE_DISCARD

    return decide

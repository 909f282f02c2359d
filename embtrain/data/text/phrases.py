"""Join frequent pairs of words into phrases, a_b, as gensim's Phrases does [mikolov2013].

    score(a, b) = (n_ab − phrase_min_count) N / (n_a n_b)          N distinct words and pairs, n counts of the text

Two neighbours of a sequence become one token if their score is above phrase_threshold; the text is read from left to
right, and a token belongs to one phrase. A second pass joins phrases of up to four words. Words and pairs are counted
in the training text alone, so the held-out documents are chosen before the first pass, by the same rule as without
phrases. Each pass is cached, with the pairs that it joins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from embtrain.common.errors import DataError
from embtrain.common.progress import Progress
from embtrain.common.terminal import format_part
from embtrain.data.storage.cache import AppendableArray, Encoded, cache_location, load_or_build
from embtrain.data.text.holdout import PartsConfig, choose_held_out, slices
from embtrain.data.text.tokenize import check_n_types

if TYPE_CHECKING:
    from gensim.models.phrases import Phrases

DELIMITER = "_"
N_REPORTED = 5   # most frequent phrases of a pass, in its line
KEYS = {"phrase_min_count", "phrase_threshold", "phrase_max_vocab_size", "valid", "test", "split_seed"}  # of the cache


class PhrasesConfig(PartsConfig):
    """Settings of phrases."""

    phrases: int = Field(0, ge=0, le=5, description="passes that join frequent pairs of words into phrases; 0: none")
    phrase_min_count: int = Field(
        5, ge=1, description="count that is subtracted from that of a pair, gensim's min_count")
    phrase_threshold: float = Field(10.0, gt=0, description="score above which a pair is joined, gensim's threshold")
    phrase_max_vocab_size: int = Field(
        40_000_000, ge=1, description="words and pairs counted at once, about 100 bytes each; rarer ones are dropped")


def join_phrases(settings: dict[str, Any], read_encoded: Callable[[], Encoded], config: PhrasesConfig,
                 cache: Path | None, name: str) -> tuple[dict[str, Any], Callable[[], Encoded]]:
    """Add the passes of `config` to a text: the settings that identify it, and a function that reads it.

    settings, read_encoded: from corpus.plan_reading. The documents of the result are the units that are held out.
    """
    for number in range(1, config.phrases + 1):
        settings = {**settings, "phrases": number, **config.model_dump(include=KEYS)}
        key, folder = cache_location(cache, name, "phrases", {key: value for key, value in settings.items()
                                                             if key not in ("files", "places")})
        build = partial(_join_once, read_encoded, config, name, number)
        read_encoded = partial(load_or_build, folder, key, build)
    return settings, read_encoded


def phrase_pairs(encoded: Encoded, n_passes: int) -> list[set[tuple[str, str]]]:
    """Return the pairs of words that each pass over a text joins."""
    passes: list[set[tuple[str, str]]] = [set() for _ in range(n_passes)]
    for number, first, second in encoded.pairs.tolist():
        passes[number - 1].add((encoded.words[first], encoded.words[second]))
    return passes


def join_pairs(words: Sequence[str], passes: Sequence[Collection[tuple[str, str]]]) -> list[str]:
    """Join the phrases of a sequence of words. passes: pairs from `phrase_pairs`."""
    joined = list(words)
    for pairs in passes:
        unjoined, joined, i = joined, [], 0
        while i < len(unjoined):
            n = 2 if tuple(unjoined[i:i + 2]) in pairs else 1
            joined.append(DELIMITER.join(unjoined[i:i + n]))
            i += n
    return joined


def _join_once(read_encoded: Callable[[], Encoded], config: PhrasesConfig, name: str, number: int, out: AppendableArray
               ) -> Encoded:
    read = read_encoded()
    if all(word.removeprefix("-").isdecimal() for word in read.words):
        raise DataError(f"{config.section}.phrases: {config.phrases}: the words of {name} are all numbers, and ids "
                        f"form no phrases; set {config.section}.phrases: 0")
    held = choose_held_out(read, config)
    bounds = np.searchsorted(read.sequence, held.units)
    phrases = _count(read, bounds, np.flatnonzero(held.part == 0), config)
    counted = np.diff(read.sequence)[np.repeat(held.part == 0, np.diff(bounds))]     # lengths of counted sequences
    words, n_words = _Words(read.words), len(read.words)
    n_joined = np.zeros(0, dtype=np.int64)                # occurrences of each phrase
    counts = np.zeros(n_words, dtype=np.int64)
    sequence = [np.zeros(1, dtype=np.int64)]
    with Progress(f"joining phrases, pass {number}", len(read.ids), "tokens") as progress:
        for s, e in slices(read.sequence, np.array([0, len(read.sequence) - 1]), np.zeros(1, np.int64)):
            offsets = read.sequence[s:e + 1]
            ids = np.asarray(read.ids[offsets[0]:offsets[-1]])
            ids, ends, joined = _join(ids, offsets - offsets[0], phrases, words)
            check_n_types(len(words.list))
            counts, n_joined = (_add(sums, new, len(words.list)) for sums, new in ((counts, ids), (n_joined, joined)))
            sequence.append(out.n + ends[1:])
            out.append(ids)
            progress.add(int(offsets[-1] - offsets[0]))
    ends = np.concatenate(sequence)
    facts = {**read.facts, "tokens": out.n, "types": int((counts > 0).sum()),
             "phrases": read.facts.get("phrases", 0) + int((n_joined > 0).sum())}
    units = ends[np.searchsorted(read.sequence, held.units)]
    line = _line(f"{name}: {config.section}.phrases: pass {number}", words.list, n_joined,
                 _dropped(phrases, counted, config))
    excess = [held.excess] if held.excess else []  # reported here, since later steps do not draw the parts again
    pairs = np.array([(number, *pair) for pair in sorted(words.pairs)], np.int32).reshape(-1, 3)
    return Encoded(out.array(), ends, units, counts, words.list, facts, (*read.warnings, *excess, line),
                   held.part if held.part.any() else held.part[:0], np.concatenate([read.pairs, pairs]))


class _Words:
    """The words of a text, the ids of phrases that are joined, and the ids of their two words."""

    def __init__(self, words: list[str]):
        self.list, self.pairs = list(words), set[tuple[int, int]]()
        self._index = {word: i for i, word in enumerate(words)}

    def number(self, word: str) -> int:
        """Return the id of a word, a new one for a new word."""
        i = self._index.setdefault(word, len(self.list))
        if i == len(self.list):
            self.list.append(word)
        return i


def _count(read: Encoded, bounds: np.ndarray, units: np.ndarray, config: PhrasesConfig) -> Phrases:
    """Count the words and pairs of some units. bounds: (U+1,) first sequence of each unit."""
    from gensim.models.phrases import Phrases

    def sentences() -> Iterator[list[str]]:
        with Progress("counting phrases", len(read.ids), "tokens") as progress:
            for s, e in slices(read.sequence, bounds, units):
                begin = int(read.sequence[s])
                ids = read.ids[begin:int(read.sequence[e])].tolist()
                for i in range(s, e):
                    a, b = int(read.sequence[i]) - begin, int(read.sequence[i + 1]) - begin
                    yield [words[number] for number in ids[a:b]]
                progress.add(len(ids))

    words = read.words
    return Phrases(sentences(), min_count=config.phrase_min_count, threshold=config.phrase_threshold,
                   max_vocab_size=config.phrase_max_vocab_size, delimiter=DELIMITER)


def _join(ids: np.ndarray, offsets: np.ndarray, phrases: Phrases, words: _Words
          ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join the phrases of some sequences. ids: (n,) int32. offsets: (S+1,), the first is 0.

    Returns the new ids (m,) int32, the new offsets (S+1,), and the ids of the phrases, (n − m,).
    """
    n_words = len(words.list)
    pairs, pair = np.unique(ids[:-1].astype(np.int64) * n_words + ids[1:], return_inverse=True)
    phrase = np.full(len(pairs), -1, dtype=np.int32)                       # id of each distinct pair, -1: not joined
    for i, (a, b) in enumerate(zip(*(x.tolist() for x in np.divmod(pairs, n_words)), strict=True)):
        token, score = phrases.score_candidate(words.list[a], words.list[b], [])
        if score is not None:
            phrase[i] = words.number(token)
            words.pairs.add((a, b))
    joined = np.append(phrase[pair], np.int32(-1))                         # (n,)  of each token and its successor
    joined[offsets[1:] - 1] = -1                                           # the last token of a sequence
    # Of consecutive pairs that could be joined, every second one is: the first takes both of its tokens.
    is_open = joined >= 0
    position = np.arange(len(ids))
    begins = is_open & ~np.concatenate([[False], is_open[:-1]])
    first = np.maximum.accumulate(np.where(begins, position, 0))
    taken = is_open & ((position - first) % 2 == 0)
    keep = ~np.concatenate([[False], taken[:-1]])
    new_offsets = np.concatenate([[0], np.cumsum(keep)])[offsets]
    return np.where(taken, joined, ids)[keep], new_offsets, joined[taken]


def _add(sums: np.ndarray, ids: np.ndarray, n: int) -> np.ndarray:
    """Add the number of occurrences of each id to sums, and return them with n entries."""
    new: np.ndarray = np.bincount(ids, minlength=n)
    new[:len(sums)] += sums
    return new


def _dropped(phrases: Phrases, lengths: np.ndarray, config: PhrasesConfig) -> str:
    """Return how many occurrences gensim dropped, and the remedy; empty without any. lengths: of the sequences."""
    n = int(np.maximum(2 * lengths - 1, 0).sum())       # words, and pairs of neighbours
    if not (n_dropped := n - sum(phrases.vocab.values())):
        return ""
    key = f"{config.section}.phrase_max_vocab_size"
    part = format_part(n_dropped, n, "occurrences of words and pairs", "is", "are")
    return f"{part} not counted, because {key} is {phrases.max_vocab_size:,}; raise it"


def _line(prefix: str, words: list[str], n_joined: np.ndarray, dropped: str) -> str:
    """Return the line about a pass: the number of phrases, the most frequent ones, and `dropped`."""
    found = np.flatnonzero(n_joined)
    if not len(found):
        remedy = dropped or "lower phrase_threshold or phrase_min_count"
        return f"{prefix}: no pair scores above the threshold; {remedy}"
    ranked = sorted((-int(n_joined[i]), words[i]) for i in found.tolist())[:N_REPORTED]
    frequent = ", ".join(f"{word} {-n:,}" for n, word in ranked)
    return (f"{prefix}: {len(found):,} phrase{'s' * (len(found) > 1)}, joined {int(n_joined.sum()):,} times, the most "
            f"frequent: {frequent}{'; ' * bool(dropped)}{dropped}")

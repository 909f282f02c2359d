"""Parallel text as ids: sentence pairs in the parts train, valid and test.

Ids on both sides: 0 is <eos>, the end of a sentence; 1 is <unk>, a word too rare for an id; then words by training
frequency. There is no padding id and no beginning id: lengths mark the end of a sentence. Held-out lines are kept as
written, because translations are compared with them.

A part without a file of its own is drawn from the training pairs. Collections translate a sentence many times, in both
directions: pairs that share a sentence on either side, directly or through other pairs, go to the same part, so no
held-out sentence was seen in training. Reading is cached; ids, which depend on min_count, are rebuilt at each load.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import Field

from embtrain.common.config import Section
from embtrain.common.errors import DataError
from embtrain.common.progress import tracked
from embtrain.data.inventory.inventory import FilesConfig
from embtrain.data.inventory.part_names import PARTS
from embtrain.data.parallel import files as parallel_files, synthetic, tokenize
from embtrain.data.parallel.files import Pair, ParallelLayout, ParallelLines
from embtrain.data.parallel.pieces import Pieces
from embtrain.data.parallel.synthetic import GrammarConfig
from embtrain.data.parallel.tokenize import Tokenizer, strip_marks, tokenize_line, tokenize_source
from embtrain.data.storage.cache import cache_location, load_or_build_arrays, pack_lines, settings_key, unpack_lines
from embtrain.data.storage.skipped import counted, log_lines, number_files
from embtrain.data.text.vocabulary import Vocabulary, build_vocabulary

EOS, UNKNOWN = "<eos>", "<unk>"
END, RARE = 0, 1   # ids of the two
SPLIT_VERSION = 3  # incremented when other pairs are held out
_log = logging.getLogger("embtrain")


class ParallelConfig(Section):
    source: str | None = Field(None, description="source language: ending of its files; null: the recipe's")
    target: str | None = Field(None, description="target language; null: the recipe's")
    columns: list[str] | None = Field(
        None, min_length=2, description="languages of the columns of a table; null: the recipe's, or [source, target]")
    tokenizer: Tokenizer = Field(
        "auto", description="signs: words, numbers and signs are separate tokens; whitespace: split at blanks")
    pieces: Pieces = Field(
        "auto", description=(
            "subword pieces that are joined: bpe (@@), sentencepiece (▁), wordpiece (##), none; auto: the "
            "kind found in the lines of a file"))
    lower: bool = Field(True, description="fold the text to lower case")
    min_count: int = Field(2, ge=1, description="minimum count in training; rarer words become <unk>")
    max_size: int | None = Field(
        None, ge=3, description="maximum vocabulary size of each side, <eos> and <unk> included; null: no limit")
    max_length: int = Field(
        100, ge=1, le=5_000, description="maximum words of a sentence; longer ones are dropped from training")
    valid: float = Field(0.02, ge=0, le=0.45, description="share held out for validation, if there is no file for it")
    test: float = Field(0.02, ge=0, le=0.45, description="share held out for the test, if there is no file for it")
    split_seed: int = Field(0, ge=0, description="seed of the held-out pairs, independent of the run's seed")
    files: FilesConfig = Field(FilesConfig(), description="patterns of the files of each part")


@dataclass(frozen=True)
class Side:
    """All sentences of one language, in the order train, valid, test."""

    ids: np.ndarray           # (N,) int32  without <eos>
    start: np.ndarray         # (S+1,) int64  sentence boundaries in ids
    vocabulary: Vocabulary    # counts are occurrences as training target; <eos> once a sentence

    def __len__(self) -> int:
        return len(self.start) - 1

    def size(self) -> np.ndarray:
        """Return the number of words of each sentence, (S,), without <eos>."""
        return np.diff(self.start)

    def sentence(self, i: int) -> np.ndarray:
        return np.asarray(self.ids[self.start[i]:self.start[i + 1]])

    def words(self, i: int) -> list[str]:
        return [self.vocabulary.words[j] for j in self.sentence(i).tolist()]


@dataclass(frozen=True)
class ParallelCorpus:
    """Both sides of a parallel corpus and its held-out lines."""

    source: Side
    target: Side
    first: tuple[int, int]     # first sentences of valid and test
    lines: list[Pair]          # of valid and test, as written
    left_out: int              # training pairs that are empty or too long
    identity: dict[str, Any]   # name, sha256, settings, counts

    def part(self, name: str) -> range:
        """Return the indices of the sentences of train, valid or test."""
        bounds = (0, *self.first, len(self.source))
        i = PARTS.index(name)
        return range(bounds[i], bounds[i + 1])

    def pair(self, i: int) -> Pair:
        """Return held-out pair i as written."""
        return self.lines[i - self.first[0]]


def load(where: list[Path], layout: ParallelLayout, config: ParallelConfig, tokenizer: Tokenizer, cache: Path | None,
         name: str) -> ParallelCorpus:
    """Load the sentences of files. DataError if they do not fit together or contain too little."""
    files = parallel_files.inventory_files(where, layout, config.files)
    files.require_training(where)
    key = {"content": files.content(where), "languages": [layout.source, layout.target],
           "columns": list(layout.columns), "pieces": layout.pieces,
           "parts": layout.parts and layout.parts.model_dump(mode="json")}
    read = files.checked(lambda: parallel_files.read(where, files, layout))
    corpus = _load_cached(key, config, tokenizer, cache, name, read, files.key(), [where[0], *files.paths()])
    return replace(corpus, identity={**corpus.identity, "files": files.tree()})


def load_synthetic(grammar: GrammarConfig, config: ParallelConfig, cache: Path | None, name: str) -> ParallelCorpus:
    """Generate the sentences of a synthetic recipe."""
    key = {"content": settings_key({"grammar": synthetic.VERSION, **grammar.model_dump()})}
    return _load_cached(key, config, "auto", cache, name, lambda: ParallelLines(synthetic.sentences(grammar)))


def _load_cached(key: dict[str, Any], config: ParallelConfig, tokenizer: Tokenizer, cache: Path | None, name: str,
             pairs: Callable[[], ParallelLines], names: Sequence[Sequence[str]] = (), places: Sequence[Path] = ()
             ) -> ParallelCorpus:
    """Load a corpus from the cache, or build it from `pairs`. names: name and part of each file. places: paths."""
    relevant = config.model_dump(include={"lower", "valid", "test", "split_seed"})
    key = {**key, "tokenizer": tokenizer, "words": tokenize.VERSION, "split": SPLIT_VERSION, **relevant}
    digest, folder = cache_location(cache, name, "parallel", {**key, "names": names})

    def read() -> dict[str, np.ndarray]:
        parts = _split((text := pairs()).parts, config, tokenizer)
        lines = [*number_files(text.warnings, places), *_overlap(parts, name)]
        facts = {"pieces": pack_lines(text.pieces), "warnings": pack_lines(lines)}
        return {**_encode(parts, tokenizer, config.lower), **facts}

    arrays = load_or_build_arrays(folder, digest, read)
    for kind, side in zip(unpack_lines(arrays["pieces"]), ("source", "target"), strict=True):
        if kind != "none":
            _log.warning("%s: the %s is split into subwords (%s), which are joined; to keep them, set "
                         "translation.pieces: none", name, side, kind)
    log_lines(unpack_lines(arrays["warnings"]), places)
    return _build_corpus(arrays, config, {"name": name, "sha256": key["content"], "settings": key})


def _split(parts: dict[str, list[Pair]], config: ParallelConfig, tokenizer: Tokenizer) -> dict[str, list[Pair]]:
    """Return the pairs of train, valid and test. A positive share of the target sentences holds out at least one."""
    train = parts.get("train", [])
    lacking = [(part, share) for part, share in (("valid", config.valid), ("test", config.test))
               if part not in parts and share > 0]
    out = {part: list(parts.get(part, [])) for part in PARTS[1:]} | {"train": []}
    group_of, size = np.zeros(len(train), np.int64), np.zeros(1, np.int64)
    if lacking:
        group_of, size = _group_pairs(train, tokenizer, config.lower)
    part_of = np.full(len(size), "train", dtype=object)
    order, n = np.random.default_rng(config.split_seed).permutation(len(size)), int(size.sum())
    for part, share in lacking:
        target_size = max(1, round(share * n))
        free = order[(part_of[order] == "train") & (size[order] <= target_size)]  # larger groups stay in train
        part_of[free[size[free].cumsum() - size[free] < target_size]] = part
        if not (part_of == part).any() or not (part_of == "train").any():
            sentences, groups = counted(n, "target sentence", "target sentences"), counted(len(size), "group", "groups")
            raise DataError(f"translation.{part}: a share of {share} cannot be held out of {sentences} in {groups}; "
                            "set it to 0, or give a file of that part")
    for pair, group in zip(train, group_of.tolist(), strict=True):
        out[part_of[group]].append(pair)
    return out


def _overlap(parts: dict[str, list[Pair]], name: str) -> list[str]:
    """Return a one-line warning about held-out pairs that are also training pairs, if there are any."""
    train = set(parts["train"])
    repeated = {part: sum(pair in train for pair in parts[part]) for part in PARTS[1:]}
    counts = [f"{n:,} of {len(parts[part]):,} pairs of {part}" for part, n in repeated.items() if n]
    verb = "is also a training pair" if sum(repeated.values()) == 1 else "are also training pairs"
    return [f"{name}: {' and '.join(counts)} {verb}"] if counts else []


def _group_pairs(pairs: list[Pair], tokenizer: Tokenizer, lower: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each pair (n,), and the number of target sentences in each group.

    Pairs of different groups share no sentence, compared by the tokens that the model reads, not by the raw line.
    """
    from scipy.sparse import coo_matrix  # decision 130: every run imports this module
    from scipy.sparse.csgraph import connected_components

    sides: tuple[dict[str, int], dict[str, int]] = {}, {}
    a, b = (
        np.array(
            [side.setdefault("\n".join(tokenize_source(pair[i], tokenizer, lower)), len(side)) for pair in pairs],
            np.int64,
        )
        for i, side in enumerate(sides)
    )
    n = sum(map(len, sides))
    edges = coo_matrix((np.ones(len(pairs), np.int8), (a, len(sides[0]) + b)), shape=(n, n))
    group = connected_components(edges, directed=False)[1].astype(np.int64)
    return group[a], np.bincount(group[len(sides[0]):], minlength=group.max(initial=-1) + 1)


def _encode(parts: dict[str, list[Pair]], tokenizer: Tokenizer, lower: bool) -> dict[str, np.ndarray]:
    """Number the words by first appearance, and collect the held-out lines."""
    out = {"first": np.cumsum([len(parts["train"]), len(parts["valid"])]).astype(np.int64)}
    for side, split in enumerate((tokenize_source, tokenize_line)):
        index: dict[str, int] = {}
        pairs = tracked((pair for part in PARTS for pair in parts[part]), f"reading {('sources', 'targets')[side]}",
                        sum(len(parts[part]) for part in PARTS), "sentences")
        pieces = [[index.setdefault(word, len(index)) for word in split(pair[side], tokenizer, lower)]
                  for pair in pairs]
        out[f"ids{side}"] = np.fromiter((i for piece in pieces for i in piece), np.int32)
        out[f"start{side}"] = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
        out[f"words{side}"] = pack_lines(index)
        out[f"lines{side}"] = pack_lines(pair[side] for part in PARTS[1:] for pair in parts[part])
    return out


def _build_corpus(arrays: dict[str, np.ndarray], config: ParallelConfig, identity: dict[str, Any]) -> ParallelCorpus:
    name, first = identity["name"], cast(list[int], arrays["first"].tolist())
    size = [np.diff(arrays[f"start{side}"]) for side in range(2)]
    n = len(size[0])
    fits = (np.minimum(*size) > 0) & (np.maximum(*size) <= config.max_length)
    kept = fits | (np.arange(n) >= first[0])                  # held-out pairs are never dropped
    if not fits[:first[0]].any():
        raise DataError(f"corpus: {name}: no training pair has 1 to {config.max_length} words "
                        f"(translation.max_length) on "
                        "each side")
    if n_left := int((~kept).sum()):
        first_left = int((~kept).argmax())
        _log.warning("%s: %s training pairs are empty or longer than translation.max_length: %s and are removed; the "
                     "first has %s and %s words", name, f"{n_left:,}", config.max_length, f"{size[0][first_left]:,}",
                     f"{size[1][first_left]:,}")
    if cut := int((np.maximum(*size)[first[0]:] > config.max_length).sum()):
        _log.warning("%s: %s held-out sentences are longer than translation.max_length: %s and are truncated; the "
                     "references of BLEU are complete", name, f"{cut:,}", config.max_length)
    if empty := int((size[0][first[0]:] == 0).sum()):
        _log.warning("%s: %s held-out source lines are empty; their translations are empty lines too", name,
                     f"{empty:,}")
    signs = identity["settings"]["tokenizer"] != "whitespace"
    sides = [_build_side(arrays, side, kept, first[0] - n_left, config, signs) for side in range(2)]
    lines = list(zip(unpack_lines(arrays["lines0"]), unpack_lines(arrays["lines1"]), strict=True))
    bounds = (first[0] - n_left, first[1] - n_left)
    counts = {"pairs": n, "train": bounds[0], "valid": bounds[1] - bounds[0], "test": n - n_left - bounds[1],
              "left_out": n_left, "source_words": len(sides[0].vocabulary), "target_words": len(sides[1].vocabulary)}
    relevant = config.model_dump(include={"min_count", "max_size", "max_length"})
    identity = {**identity, "pieces": unpack_lines(arrays["pieces"]), "settings": {**identity["settings"], **relevant},
                "counts": counts}
    return ParallelCorpus(sides[0], sides[1], bounds, lines, n_left, identity)


def _build_side(arrays: dict[str, np.ndarray], side: int, kept: np.ndarray, n_train: int, config: ParallelConfig,
          signs: bool) -> Side:
    ids, start, words = arrays[f"ids{side}"], arrays[f"start{side}"], unpack_lines(arrays[f"words{side}"])
    size = np.diff(start)
    ids, size = ids[np.repeat(kept, size)], size[kept]
    read = np.minimum(size, config.max_length)                   # held-out sentences may be longer
    ids = ids[np.arange(len(ids)) - np.repeat(np.cumsum(size) - size, size) < np.repeat(read, size)]
    begin = np.concatenate([[0], np.cumsum(read)]).astype(np.int64)
    counts = np.bincount(ids[:begin[n_train]], minlength=len(words))
    if side and signs:
        words, ids = _strip_rare_marks(words, ids, counts, config.min_count)
        counts = np.bincount(ids[:begin[n_train]], minlength=len(words))
    special = np.isin(words, [EOS, UNKNOWN])                  # in the text itself they are unknown words
    eligible = np.where(special, 0, counts)
    max_words = None if config.max_size is None else config.max_size - 2
    if not (eligible >= config.min_count).any():
        raise DataError(f"translation.min_count: no word of the {('source', 'target')[side]} occurs "
                        f"{config.min_count} times in training; lower it")
    chosen, new_ids = build_vocabulary(words, eligible, config.min_count, max_words)
    number = np.where(new_ids < 0, RARE, new_ids + 2).astype(np.int32)
    unknown = max(1, int(counts[new_ids < 0].sum()))         # never 0: held-out text may have unknown words
    vocabulary = Vocabulary([EOS, UNKNOWN, *chosen.words], np.concatenate([[n_train, unknown], chosen.counts]),
                            int(counts.sum()) + n_train)
    return Side(number[ids], begin, vocabulary)


def _strip_rare_marks(
    words: list[str], ids: np.ndarray, counts: np.ndarray, min_count: int
) -> tuple[list[str], np.ndarray]:
    """Drop the spacing marks of signs that are too rare with them: a plain comma is better than <unk>."""
    words, index = list(words), {word: i for i, word in enumerate(words)}
    replacement = np.arange(len(words))
    for i in np.flatnonzero(counts < min_count).tolist():
        if (plain := strip_marks(words[i])) != words[i]:
            replacement[i] = index.setdefault(plain, len(words))
            words += [plain] if index[plain] == len(words) else []
    return words, replacement[ids]


def encode_words(words: Sequence[str], vocabulary: Vocabulary) -> np.ndarray:
    """Return ids (n,) int32 of tokens, <unk> if unknown. A sign whose marked form is unknown is encoded without its
    marks."""
    index = vocabulary.index
    ids = (index.get(word, index.get(strip_marks(word), RARE)) for word in words)
    return np.fromiter((RARE if i == END else i for i in ids), np.int32)  # a literal <eos> is an unknown word

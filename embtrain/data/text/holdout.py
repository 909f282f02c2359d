"""Choose the held-out documents of a text: those of files named so, else a random share.

A part without its own file is drawn from the training documents. If a share is less than one document, long documents
are cut into pieces of PIECE_TOKENS tokens, which end at the end of a sequence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field

from embtrain.common.config import Section
from embtrain.common.errors import DataError
from embtrain.common.terminal import format_part
from embtrain.data.inventory.inventory import FilesConfig
from embtrain.data.storage.cache import Encoded
from embtrain.data.storage.skipped import counted

PIECE_TOKENS = 10_000   # a longer document is held out in pieces if there are too few documents
SLICE_TOKENS = 1 << 20  # tokens processed at once
MIN_COMPARED = 5        # tokens; shorter lines occur twice in any text
MAX_FACTOR = 2          # times the tokens of the shares; more held-out tokens are reported
MAX_SHARE = 0.1         # of the tokens; less is never reported


class PartsConfig(Section):
    """Settings of the vocabulary size and of the held-out parts."""

    max_size: int | None = Field(
        None, ge=1, description="maximum vocabulary size, the most frequent words; null: no limit")
    valid: float = Field(0.02, ge=0, le=0.45, description="share of the documents held out for validation")
    test: float = Field(0.02, ge=0, le=0.45, description="share of the documents held out for the test")
    split_seed: int = Field(0, ge=0, description="seed of the held-out documents, independent of the run's seed")
    files: FilesConfig = Field(FilesConfig(), description="patterns of the files of each part")
    section: ClassVar[str] = "text"  # section of the settings, for errors
    entry: ClassVar[str] = "word"    # entry of the vocabulary, for errors

    @property
    def keeps_words(self) -> bool:
        """Whether a word that occurs in training keeps an occurrence there when units are held out."""
        return False


@dataclass(frozen=True)
class HeldOut:
    """The units of a text, documents or pieces of them, and the part of each."""

    units: np.ndarray      # (U+1,) int64  offsets
    part: np.ndarray       # (U,) int8  0 train, 1 valid, 2 test
    reason: str | None     # why nothing is held out although a share is set
    excess: str | None     # line on many more held-out tokens than the shares request
    shortage: str | None   # line on fewer held-out units than the shares request


def choose_held_out(read: Encoded, config: PartsConfig) -> HeldOut:
    """Choose the held-out units of `read`.

    Raises DataError if the shares leave nothing to train on, or no file is for training.
    """
    part_by_file, shares = read.part, config
    if len(part_by_file):
        if not (part_by_file == 0).any():
            raise DataError(f"{config.section}.files.train: every file is held out by its name; set a training file")
        shares = config.model_copy(update={name: 0.0 for part, name in ((1, "valid"), (2, "test"))
                                           if (part_by_file == part).any()})
    units = holdout_units(read.sequence, read.document, shares)
    if not len(part_by_file):
        part = np.zeros(len(units) - 1, dtype=np.int8)
    elif units is read.document:
        part = part_by_file.copy()
    else:
        part = part_by_file[np.searchsorted(read.document, units[:-1], "right") - 1]
    undecided = np.flatnonzero(part == 0)

    def spare_units(order: np.ndarray, n: int) -> np.ndarray:
        return np.searchsorted(undecided, _spare_units(read, units, part, undecided[order], n))
    drawn = draw_parts(len(undecided), shares, spare_units if config.keeps_words else None)
    part[undecided] = drawn
    return HeldOut(units, part, missing_split_reason(len(drawn), shares),
                   excess_line(np.diff(units)[undecided], drawn, shares), shortage_line(drawn, shares))


def _spare_units(read: Encoded, units: np.ndarray, part: np.ndarray, order: np.ndarray, n: int) -> np.ndarray:
    """Return the first n units of `order` that can be held out together while no word loses its last training one."""
    counts, spare = training_counts(read, units, part), list[int]()
    for i in order.tolist():
        if len(spare) == n:
            break
        words, times = np.unique(read.ids[units[i]:units[i + 1]], return_counts=True)
        if (counts[words] > times).all():
            counts[words] -= times
            spare.append(i)
    return np.array(spare, dtype=np.int64)


def training_counts(read: Encoded, units: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Return the occurrences of each word in the units whose part is 0, (V,)."""
    counts = read.counts.copy()
    for s, e in slices(read.sequence, np.searchsorted(read.sequence, units), np.flatnonzero(part > 0)):
        seen, times = np.unique(read.ids[read.sequence[s]:read.sequence[e]], return_counts=True)
        counts[seen] -= times
    return counts


def holdout_units(sequence: np.ndarray, document: np.ndarray, config: PartsConfig) -> np.ndarray:
    """Return the offsets, (U+1,), of the units that are held out.

    Units are documents, or pieces of long ones if a share is less than one document.
    """
    shares = [share for share in (config.valid, config.test) if share > 0]
    if not shares or min(shares) * (len(document) - 1) >= 1:
        return document
    cuts = [document]
    for begin, end in itertools.pairwise(document):
        targets = np.arange(begin + PIECE_TOKENS, end, PIECE_TOKENS)
        cuts.append(sequence[np.searchsorted(sequence, targets)])  # a piece ends where a sequence ends
    pieces = np.unique(np.concatenate(cuts))
    return pieces if len(pieces) > len(document) else document


def draw_parts(n: int, config: PartsConfig, spare_units: Callable[[np.ndarray, int], np.ndarray] | None = None
               ) -> np.ndarray:
    """Draw the part of n units, (n,) int8: 0 train, 1 valid, 2 test.

    A positive share holds out at least one unit. spare_units: from the units in random order, (n,), and a number,
    returns the first units that may be held out, at most that many; if they are fewer, both parts are smaller. Raises
    DataError if none is left to train on.
    """
    part = np.zeros(n, dtype=np.int8)
    if missing_split_reason(n, config) is not None:
        return part
    order, taken = np.random.default_rng(config.split_seed).permutation(n), 0
    sizes = part_sizes(n, config)
    if sum(sizes) >= n:
        raise DataError(f"{config.section}.valid, {config.section}.test: shares of {config.valid:g} and "
                        f"{config.test:g} of {n} documents leave none for training; lower them")
    if spare_units is not None and len(order := spare_units(order, n_held := sum(sizes))) < n_held:
        n_valid = round(sizes[0] * len(order) / n_held)
        sizes = [n_valid, len(order) - n_valid]
    for number, size in enumerate(sizes, 1):
        part[order[taken:taken + size]] = number
        taken += size
    return part


def part_sizes(n: int, config: PartsConfig) -> list[int]:
    """Return the units of valid and of test that the shares of n units request."""
    return [max(1, round(share * n)) if share > 0 else 0 for share in (config.valid, config.test)]


def missing_split_reason(n: int, config: PartsConfig) -> str | None:
    """Return why nothing of n units is held out although a share is set; None if something is."""
    if n > (n_parts := sum(share > 0 for share in (config.valid, config.test))):
        return None
    s = "s" * (n != 1)
    return (f"{config.section}: {n} document{s} or piece{s} of about {PIECE_TOKENS:,} tokens up to a line end, and "
            f"{n_parts + 1} are needed to hold some out; nothing is held out")


def excess_line(lengths: np.ndarray, part: np.ndarray, config: PartsConfig) -> str | None:
    """Return a line on many more held-out tokens than the shares request; None if there are not.

    Shares count units, so a part of a short text, or one with a long document, can take many tokens. lengths: (n,)
    tokens of each unit. part: (n,) from `draw_parts`.
    """
    n, n_held = int(lengths.sum()), int(lengths[part > 0].sum())
    shares = {f"{config.section}.{name}": share for name, share in (("valid", config.valid), ("test", config.test))
              if share > 0}
    if n_held <= max(MAX_FACTOR * sum(shares.values()), MAX_SHARE) * n:
        return None
    held = format_part(n_held, n, f"tokens ({n_held / n:.0%})", "is", "are")
    return (f"{', '.join(shares)}: {', '.join(f'{share:g}' for share in shares.values())}: {held} held out, because "
            f"each part takes whole documents or pieces, at least one of {len(part):,}; set {' and '.join(shares)} to "
            "0, or give more text or files")


def shortage_line(part: np.ndarray, config: PartsConfig) -> str | None:
    """Return a line on fewer held-out units than the shares request, because words would be lost; None if not fewer.

    part: (n,) from `draw_parts`.
    """
    n_held, n_requested = int((part > 0).sum()), sum(part_sizes(len(part), config))
    if n_held >= n_requested or missing_split_reason(len(part), config) is not None:
        return None
    held = format_part(n_held, len(part), "units", "is", "are")
    return (f"{config.section}.valid, {config.section}.test: {config.valid:g}, {config.test:g}: {held} held out "
            f"instead of {n_requested:,}, because each of the others contains a "
            f"{config.entry} that would not occur in training; to hold out more, set {config.section}.min_count: 2, "
            f"which gives {config.entry}s that occur once no vector")


def lost_line(counts: np.ndarray, config: PartsConfig) -> str | None:
    """Return a line on words that occur only in files held out by their name; None without any.

    counts: (V,) from `training_counts`.
    """
    n, only = int((counts == 0).sum()), "only in files of valid or test"
    if n == 0 or not config.keeps_words:
        return None
    return (f"{config.section}.files: "
            + counted(n, f"{config.entry} occurs {only} and gets no vector; add it to the training files",
                      f"{config.entry}s occur {only} and get no vector; add them to the training files"))


def slices(sequence: np.ndarray, bounds: np.ndarray, chosen: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield ranges of sequences, of at most about SLICE_TOKENS tokens each, of the chosen documents in order."""
    for run in np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1):
        s, last = (int(bounds[run[0]]), int(bounds[run[-1] + 1])) if len(run) else (0, 0)
        while s < last:
            e = min(max(int(np.searchsorted(sequence, sequence[s] + SLICE_TOKENS, "right")) - 1, s + 1), last)
            yield s, e
            s = e


def split_warnings(read: Encoded, held: HeldOut, section: str) -> tuple[str, ...]:
    """Return the lines on a split: too much, little or nothing held out, or sequences that also occur in training."""
    return tuple(filter(None, (held.reason, held.excess, held.shortage, overlap_warning(read, held, section))))


def overlap_warning(read: Encoded, held: HeldOut, section: str) -> str | None:
    """Return a line on held-out sequences that also occur in training; None without any."""
    is_held_out = np.repeat(held.part > 0, np.diff(np.searchsorted(read.sequence, held.units)))
    n_repeated, n = count_repeated(read.ids, read.sequence, is_held_out)
    if not n_repeated:
        return None
    repeated = format_part(n_repeated, n, f"held-out sequences of {MIN_COMPARED} words or more also", "occurs", "occur")
    return f"{section}: {repeated} in training ({n_repeated / n:.1%})"


def count_repeated(ids: np.ndarray, sequence: np.ndarray, held: np.ndarray) -> tuple[int, int]:
    """Return (held-out sequences that are also training sequences, held-out sequences).

    Only sequences of MIN_COMPARED or more tokens count. sequence: (S+1,) offsets in ids (N,). held: (S,) bool.
    Sequences are compared by a hash of 64 bits.
    """
    lengths = np.diff(sequence)                                                           # (S,)
    if not held.any():
        return 0, 0
    weights = np.random.default_rng(0).integers(1, 1 << 63, int(lengths.max()), dtype=np.uint64) | np.uint64(1)
    hashes = np.zeros(len(lengths), dtype=np.uint64)
    for s, e in slices(sequence, np.array([0, len(lengths)]), np.zeros(1, np.int64)):
        begin, end = int(sequence[s]), int(sequence[e])
        position = np.arange(end - begin) - np.repeat(sequence[s:e] - begin, lengths[s:e])
        mixed = (np.asarray(ids[begin:end]).astype(np.uint64) + np.uint64(1)) * weights[position]
        filled = s + np.flatnonzero(lengths[s:e] > 0)        # reduceat is wrong for empty slices
        if len(filled):
            hashes[filled] = np.add.reduceat(mixed, sequence[filled] - begin)
    long = lengths >= MIN_COMPARED
    return int(np.isin(hashes[held & long], hashes[~held & long]).sum()), int((held & long).sum())

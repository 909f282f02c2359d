"""Compares the compiled reader with its Python reference, and generates damaged text for it.

The first byte selects the mode for the rest. `scan.scan` must return for a text what `tokenize.encode` returns.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator

from embtrain.common.errors import DataError
from embtrain.data.storage.cache import AppendableArray, Encoded
from embtrain.data.storage.containers import Source
from embtrain.data.text import readers, scan, tokenize
from embtrain.data.text.readers import Tally, TextDocument
from embtrain.kernels.reference.text import scan as reference
from embtrain.kernels.text import scan as wrapper
from helpers.hostile import harm

SEEDS = ["The cat sat.\nÉmile 42 sat_down\r\n",
         "\ufeffשָׁלוֹם हिन्दी ΟΔΥΣΣΕΥΣ İ\u2028x\0y", "a" * 40 + " Straße\x85\u00a0z",
         "می\u200cخواهم ශ්\u200dරී Donau\u00addampf\u2060schiff\u200b\u202ex\u2013y"]
HOWS = (0, 1, 2, 36, 100, 228, 255)


def sound() -> Iterator[tuple[str, bytes]]:
    """Names and valid texts from which damaged ones are made."""
    for i, text in enumerate(SEEDS):
        for how in HOWS:
            yield f"{i}-{how}", bytes([how]) + text.encode()


def damaged(n: int) -> Iterator[bytes]:
    """The same n in every run."""
    texts = [data[1:] for _, data in sound()]
    for i in range(n):
        draw = random.Random(f"text {i}")
        yield bytes([draw.randrange(256)]) + harm(draw.choice(texts) * draw.choice((1, 1, 1, 40)), draw)


def same_types(data: bytes, mode: int, lower: bool, shortest: int, longest: int) -> None:
    ours, theirs = wrapper.Types(), reference.ReferenceTypes()
    cut = len(data) // 2
    for part in (data[:cut] + b" ", data[cut:] + b"\n"):
        a, b = ours.scan(part, mode, lower, shortest, longest), theirs.scan(part, mode, lower, shortest, longest)
        assert a.types.tolist() == b[0].tolist() and a.ends.tolist() == b[1].tolist() and a[2:] == b[2:]
    (words, foreign), (expected_words, expected_foreign) = ours.since(0), theirs.since(0)
    assert words == expected_words and foreign.tolist() == expected_foreign.tolist()


def source(data: bytes) -> Source:
    return Source("x", io.BufferedReader(io.BytesIO(data)), len(data))  # type: ignore[arg-type]


def encoded(data: bytes, split: tokenize.Splitter, by_line: bool, through_the_core: bool) -> Encoded | None:
    """None: rejected."""
    try:
        if through_the_core:
            documents = [TextDocument("x", "text", iter(()), readers._raw_pieces(source(data)))]
            return scan.scan(documents, lambda _: split, by_line, 7, AppendableArray(), Tally())
        documents = [TextDocument("x", "text", readers._decoded_pieces(source(data), Tally()))]
        return tokenize.encode(documents, lambda _: split, by_line, 7, AppendableArray())
    except DataError:
        return None


def same_text(data: bytes, name: str, lower: bool, by_line: bool) -> None:
    split = tokenize.make_splitter(name, "text", lower, 1, 30)  # type: ignore[arg-type]
    result, expected = (encoded(data, split, by_line, core) for core in (False, True))
    if result is None or expected is None:
        assert result is expected
        return
    assert result.words == expected.words and result.ids.tolist() == expected.ids.tolist()
    assert result.sequence.tolist() == expected.sequence.tolist()
    assert result.counts.tolist() == expected.counts.tolist()
    assert result.facts == expected.facts


def agree(data: bytes) -> None:
    if len(data) < 2:
        return
    how, body = data[0], data[1:]
    same_types(body, how % 3, bool(how & 4), 1 + (how >> 3 & 1), 30 if how & 16 else 5)
    same_text(body, "words" if how & 32 else "whitespace", bool(how & 64), bool(how & 128))

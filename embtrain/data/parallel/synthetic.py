"""Synthetic sentence pairs, if no parallel text is available: two small languages with the same meanings.

    meaning      subject, verb, object, sometimes a place; each noun may have a property
    target       a PROPERTY THING VERBs a THING [at the PLACE] .             (verb in the middle, property first)
    source       THING PROPERTY ga , THING PROPERTY o [PLACE ni] VERB .      (verb at the end, property last, cases)

Words are made of syllables; the k-th word of its kind has probability ∝ 1/(k + 2). A translator has to learn words,
another word order, and words without a counterpart. The sentences depend only on the numbers of the recipe.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from embtrain.common.config import Section

VERSION = 1  # incremented when the same numbers give other sentences
_SOURCE, _TARGET = ("k", "m", "r", "sh", "t"), ("b", "d", "f", "l", "pr", "st", "v")
_VOWELS = "aeiou"


class GrammarConfig(Section):
    """The numbers of a recipe."""

    things: int = Field(60, ge=2, le=10_000, description="nouns")
    verbs: int = Field(25, ge=2, le=10_000, description="verbs")
    properties: int = Field(15, ge=2, le=10_000, description="adjectives")
    train: int = Field(ge=1, le=1_000_000, description="training pairs")
    valid: int = Field(200, ge=1, le=100_000, description="validation pairs")
    test: int = Field(200, ge=1, le=100_000, description="test pairs")
    seed: int = Field(1, ge=0, description="random seed")


def sentences(config: GrammarConfig) -> dict[str, list[tuple[str, str]]]:
    """Return the pairs (source, target) of each part."""
    draw = np.random.default_rng(config.seed)
    sizes = (config.things, config.verbs, config.properties)
    words = [_lexicon(n, syllables, sum(sizes[:i])) for syllables in (_SOURCE, _TARGET) for i, n in enumerate(sizes)]
    source, target = words[:3], words[3:]
    return {part: [_pair(draw, source, target) for _ in range(getattr(config, part))]
            for part in ("train", "valid", "test")}


def _lexicon(n: int, consonants: tuple[str, ...], begin: int) -> list[str]:
    """Return n words, different from the first `begin` words of the language, which other kinds use."""
    syllables = [a + b for a in consonants for b in _VOWELS]
    size, words = len(syllables), []
    for i in range(begin + size, begin + size + n):          # at least two syllables: particles have one
        word = ""
        while i:
            i, digit = divmod(i, size)
            word = syllables[digit] + word
        words.append(word)
    return words


def _pair(draw: np.random.Generator, source: list[list[str]], target: list[list[str]]) -> tuple[str, str]:
    things = [_pick(draw, len(source[0])) for _ in range(3)]
    verb, with_place = _pick(draw, len(source[1])), draw.random() < 0.4
    described = [_pick(draw, len(source[2])) if draw.random() < 0.5 else None for _ in range(2)]
    source_nouns = [source[0][thing] + ("" if which is None else f" {source[2][which]}")
              for thing, which in zip(things, described, strict=False)]
    target_nouns = ["a " + ("" if which is None else f"{target[2][which]} ") + target[0][thing]
            for thing, which in zip(things, described, strict=False)]
    place = (f" {source[0][things[2]]} ni", f" at the {target[0][things[2]]}") if with_place else ("", "")
    return (f"{source_nouns[0]} ga, {source_nouns[1]} o{place[0]} {source[1][verb]}.".capitalize(),
            f"{target_nouns[0]} {target[1][verb]}s {target_nouns[1]}{place[1]}.".capitalize())


def _pick(draw: np.random.Generator, n: int) -> int:
    weight = 1 / (np.arange(n) + 2)
    return int(draw.choice(n, p=weight / weight.sum()))

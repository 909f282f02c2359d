"""Counts and findings of the readers, and the options that they depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from embtrain.data.formats import detect

T = TypeVar("T")


@dataclass
class Tally:
    """Counts and findings over all documents, to be reported to the user."""

    replaced: int = 0               # characters that are not UTF-8
    nul: int = 0                    # NUL characters
    where: str = ""                 # the first stream with one of these
    missing: int = 0                # objects of JSON lines without the field
    pages: int = 0                  # pages of a MediaWiki dump that are too short or no articles
    tokenised: tuple[str, str] | None = None           # a tokenised stream, and a mark in it
    joined: tuple[str, detect.Subwords] | None = None  # the first stream whose subwords were joined, and their sign
    split: detect.Subwords | None = None               # the sign in the first stream whose subwords stay split
    readers: tuple[str, ...] = ()                      # of the documents, each once, in the order of the text
    tagged: tuple[str, str] | None = None              # the first stream of text with a few tags, and one of them

    def add(self, where: str, replaced: int, nul: int) -> None:
        """Add invalid and NUL characters of the stream `where`."""
        if replaced or nul:
            self.replaced, self.nul, self.where = self.replaced + replaced, self.nul + nul, self.where or where

    def skip_page(self, where: str) -> None:
        """Count a skipped page of the dump `where`."""
        self.pages, self.where = self.pages + 1, self.where or where

    def add_reader(self, kind: str) -> None:
        """Add the reader of a document, which is not auto."""
        if kind not in self.readers:
            self.readers = (*self.readers, kind)

    def merge(self, other: Tally) -> None:
        """Add what was found in the text that follows."""
        self.where = self.where or other.where
        self.replaced, self.nul, self.missing, self.pages = (
            self.replaced + other.replaced, self.nul + other.nul, self.missing + other.missing,
            self.pages + other.pages)
        self.tokenised, self.joined, self.tagged = (
            self.tokenised or other.tokenised, self.joined or other.joined, self.tagged or other.tagged)
        self.split = self.split or other.split
        for kind in other.readers:
            self.add_reader(kind)

    def renamed(self, rename: Callable[[str], str]) -> Tally:
        """Return a copy with other names of the streams."""
        def renamed_first(pair: tuple[str, T] | None) -> tuple[str, T] | None:
            return None if pair is None else (rename(pair[0]), pair[1])
        return replace(self, where=rename(self.where), tokenised=renamed_first(self.tokenised),
                       joined=renamed_first(self.joined), tagged=renamed_first(self.tagged))

    def clear(self) -> None:
        """Reset all counts and findings."""
        self.replaced, self.nul, self.where, self.missing, self.pages = 0, 0, "", 0, 0
        self.tokenised = self.joined = self.split = self.tagged = None
        self.readers = ()


@dataclass(frozen=True)
class TextReadOptions:
    """Options of reading, in addition to the reader."""

    field: str = "text"      # jsonl: the field that contains the text
    section: str = "text"    # section of the settings, for errors
    plain: bool = False      # auto: do not search text for marks and subwords, because the user set the tokenizer
    examined: bool = False   # auto: the first streams were searched for marks; `tokenised` is the result
    tokenised: tuple[str, str] | None = None

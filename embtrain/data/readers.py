"""Streams -> documents: pieces of text in which a line feed ends a sequence.

reader   what is one document                         what is one line
text     a file or a member                           a line of the file
tokens   the same; words are parted by blanks already
tagged   the same; `word/tag` or `word_TAG` as in Brown and MASC, the tags are dropped
tei      a file; the text of <body> without <note>    a paragraph, heading or verse line
wiki     an article of a MediaWiki dump that gensim's WikiCorpus would keep: name space 0, 50 words or more
                                                      the whole article
auto     each stream is wiki, tei or text, as its first bytes say
A blank line is an empty line and nothing more.
"""

from __future__ import annotations

import codecs
import io
import itertools
import multiprocessing
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, get_args
from xml.etree.ElementTree import ParseError

from embtrain.data import xml
from embtrain.data.containers import Source, sources
from embtrain.data.encoding import WIDE, mend
from embtrain.errors import DataError, UsageError

Reader = Literal["auto", "text", "tokens", "tagged", "tei", "wiki"]
CHUNK = 1 << 20             # characters at once
PARALLEL_BYTES = 64 << 20   # a dump of this size is worth further processes
NOT_TEXT = 0.3              # share of NUL, control and undecodable characters in the first piece of a binary file
_TAG = re.compile(r"[/_][^\s/_]+(?!\S)")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")
_LINE_ENDS = frozenset(["p", "l", "head", "ab", "item", "cell", "trailer", "label", "opener", "closer", "salute",
                        "signed", "byline", "dateline"])


@dataclass
class Tally:
    """Characters that could not be read, over all documents."""

    replaced: int = 0
    nul: int = 0
    where: str = ""

    def add(self, where: str, replaced: int, nul: int) -> None:
        if replaced or nul:
            self.replaced, self.nul, self.where = self.replaced + replaced, self.nul + nul, self.where or where

    def clear(self) -> None:
        self.replaced, self.nul, self.where = 0, 0, ""


@dataclass(frozen=True)
class Document:
    name: str
    kind: Reader             # never auto
    pieces: Iterator[str]    # may be cut anywhere; read before the next document is asked for
    raw: Iterator[bytes] | None = None  # text and tokens: the same as it stands in UTF-8; one of the two is read


def wanted(reader: Reader) -> Callable[[str], bool]:
    """Which names in a folder or an archive are text. A file that is named itself is read whatever its name."""
    if reader == "tagged":  # the Brown corpus: ca01, but neither README nor cats.txt
        return lambda name: "." not in name and not name.isupper()
    return lambda name: name.lower().endswith((".txt", ".text", ".tokens", ".xml"))


def documents(where: list[Path], reader: Reader, tally: Tally) -> Iterator[Document]:
    if reader not in get_args(Reader):
        raise UsageError(f"reader: no {reader!r}; there are: {', '.join(get_args(Reader))}")
    for source in sources(where, wanted(reader)):
        kind = _kind(source.stream.peek(4096)[:4096]) if reader == "auto" else reader
        if kind == "wiki":
            yield from _wiki(source)
        elif kind == "tei":
            yield Document(source.name, kind, _tei(source))
        else:
            yield Document(source.name, kind, _plain(source, tally), _raw(source))


def untagged(text: str) -> str:
    return _TAG.sub("", text)


def _kind(head: bytes) -> Reader:
    if b"<mediawiki" in head:
        return "wiki"
    return "tei" if b"<TEI" in head and head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<") else "text"


def _plain(source: Source, tally: Tally) -> Iterator[str]:
    _refuse_wide(source)
    text = _decoded(source.stream)
    first = True
    while piece := text.read(CHUNK):
        if first:
            _refuse_binary(source, piece)
        first = False
        tally.add(source.name, piece.count("\ufffd"), piece.count("\0"))
        yield piece.replace("\0", " ")


def _raw(source: Source) -> Iterator[bytes]:
    """What _plain reads, not decoded: bytes that are no UTF-8 and NULs are still in it, and not yet counted."""
    _refuse_wide(source)
    first = source.stream.read(4 * CHUNK + 8)  # CHUNK characters at least
    _refuse_binary(source, _decoded(io.BytesIO(first)).read(CHUNK))
    # Python's decoder takes the first bytes of a byte order mark for one, where nothing follows.
    first = b"" if codecs.BOM_UTF8.startswith(first) else first.removeprefix(codecs.BOM_UTF8)
    yield from (first[i:i + CHUNK] for i in range(0, len(first), CHUNK))
    while piece := source.stream.read(CHUNK):
        yield piece


def _decoded(stream: IO[bytes]) -> io.TextIOWrapper:
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace")


def _refuse_wide(source: Source) -> None:
    if (head := source.stream.peek(4)[:4]).startswith(WIDE):
        raise DataError(f"{source.name}: is UTF-16 or UTF-32; {mend(head)}")


def _refuse_binary(source: Source, first: str) -> None:
    if len(first) >= 1000 and len(_CONTROL.findall(first)) > NOT_TEXT * len(first):
        raise DataError(f"{source.name}: does not look like text in UTF-8; convert it, or leave it out")


def _tei(source: Source) -> Iterator[str]:
    """The text of <body>, streamed."""
    found: list[str] = []
    depth = {"body": 0, "note": 0}
    parser = xml.parser_of(source)

    def start(tag: str, _: dict[str, str]) -> None:
        tag = tag.rpartition("}")[2]
        if tag in depth:
            depth[tag] += 1

    def end(tag: str) -> None:
        tag = tag.rpartition("}")[2]
        if tag in depth:
            depth[tag] -= 1
        if tag in _LINE_ENDS and depth["body"] and not depth["note"]:
            found.append("\n")

    def characters(data: str) -> None:
        if depth["body"] and not depth["note"]:
            found.append(data.replace("\n", " "))

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = characters
    for _ in xml.fed(source, parser, "a TEI file"):
        yield "".join(found)
        found.clear()


def _wiki(source: Source) -> Iterator[Document]:
    pages = _pages(source)
    if source.size < PARALLEL_BYTES:
        kept = map(_article, pages)
        yield from (Document(f"{source.name}#{title}", "wiki", iter([text])) for title, text in kept if text)
        return
    from gensim.corpora.wikicorpus import init_to_ignore_interrupt

    with multiprocessing.Pool(min(4, multiprocessing.cpu_count()), init_to_ignore_interrupt) as pool:
        while group := list(itertools.islice(pages, 256)):  # imap would read the whole dump ahead
            for title, text in pool.imap(_article, group, chunksize=8):
                if text:
                    yield Document(f"{source.name}#{title}", "wiki", iter([text]))


def _pages(source: Source) -> Iterator[tuple[str, str]]:
    """(title, markup) of each page. WikiCorpus itself waits for ever where a dump is damaged; its parts do not."""
    from gensim.corpora.wikicorpus import extract_pages

    try:
        for title, text, _ in extract_pages(source.stream, ("0",)):
            yield title or "", text
    except ParseError as error:
        raise DataError(f"{source.name}:{error.position[0]}: {error}; expected a MediaWiki dump") from error
    except (LookupError, ValueError, AttributeError) as error:
        if "coding" in str(error):
            raise xml.other_encoding(source, error) from error
        # Another name space; a page without title, id or text.
        raise DataError(f"{source.name}: not a MediaWiki dump ({error})") from error


def _article(page: tuple[str, str]) -> tuple[str, str]:
    """Title and text without markup; an empty text where WikiCorpus would drop the page."""
    from gensim.corpora.wikicorpus import ARTICLE_MIN_WORDS, IGNORED_NAMESPACES, filter_wiki, tokenize

    title, markup = page
    if any(title.startswith(f"{space}:") for space in IGNORED_NAMESPACES):
        return title, ""
    text = filter_wiki(markup)
    return title, text.replace("\n", " ") if len(tokenize(text)) >= ARTICLE_MIN_WORDS else ""

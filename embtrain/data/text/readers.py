"""Read streams as documents: pieces of text in which a line feed ends a sequence.

reader   document                                     line
text     a file or a member                           a line of the file
tokens   the same; words are separated by blanks already
tagged   the same; `word/tag` or `word_TAG` as in Brown and MASC, the tags are dropped
tei      a file; the text of <body> as in tei.py      a paragraph, heading or verse line
wiki     an article of a MediaWiki dump that gensim's WikiCorpus would keep: name space 0, 50 words or more
                                                      the whole article
wikiextractor  an article between <doc ...> and </doc>, as WikiExtractor writes them
                                                      a line of the article
jsonl    an object of JSON lines                      a line of its field
parquet, arrow  a row of a table; arrow also reads data sets that the library `datasets` saved
                                                      a line of its column
auto     each stream is wiki, tei, wikiextractor or text, as detect.py decides by its first bytes; text is tokens
         if one of the first streams has marks (<unk>). Other markup and JSON are rejected
A blank line is an empty line without further meaning.
"""

from __future__ import annotations

import codecs
import html
import io
import itertools
import multiprocessing
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal, get_args
from xml.etree.ElementTree import ParseError

from embtrain.common.errors import DataError, UsageError
from embtrain.data.formats import arrow_tables, detect, json_lines, running_text, subwords, xml
from embtrain.data.formats.running_text import CONTROL, MAX_BINARY_SHARE
from embtrain.data.formats.tei import read_body_text
from embtrain.data.inventory.inventory import FileRules, Inventory
from embtrain.data.storage.containers import TEXT, Source, without_packing
from embtrain.data.storage.encoding import UTF16_MARKS, encoding_hint
from embtrain.data.storage.ranges import open_range
from embtrain.data.text.findings.tally import Tally, TextReadOptions

Reader = Literal["auto", "text", "tokens", "tagged", "tei", "wiki", "wikiextractor", "jsonl",
                 "parquet", "arrow"]
CHUNK = 1 << 20             # characters read at once
PARALLEL_BYTES = 64 << 20   # a dump of this size is read by several processes
MAX_EXAMINED = 16           # streams searched for marks of tokenised text
_TAG = re.compile(r"[/_][^\s/_]+(?!\S)")
_DOC = re.compile(r"<doc\s[^<>]*>\s*$")
_TITLE = re.compile(r'\btitle="([^"]*)"')


@dataclass(frozen=True)
class TextDocument:
    """One document, as a stream of pieces of text."""

    name: str
    kind: Reader             # never auto
    pieces: Iterator[str]    # may be cut anywhere; read before the next document
    raw: Iterator[bytes] | None = None  # text and tokens: the same bytes, not decoded; only one of the two is read
    part: str = "train"      # of its file


def file_rules(reader: Reader, section: str, parts_by_name: bool) -> FileRules:
    """Return the rules for the files of a reader. parts_by_name: a file's name gives its part.

    Raises UsageError for an unknown reader.
    """
    if reader not in get_args(Reader):
        raise UsageError(f"reader: no {reader!r}; there are: {', '.join(get_args(Reader))}")
    if reader in ("parquet", "arrow"):
        arrow_tables.require_pyarrow(section, reader)
    verdicts = {"tagged": running_text.tagged_verdict, "jsonl": running_text.json_verdict,
                "parquet": running_text.parquet_verdict, "arrow": running_text.arrow_verdict}
    verdict = verdicts.get(reader, running_text.text_verdict)
    return FileRules(section, TEXT, verdict, form=_form, alone=True, parts_by_name=parts_by_name)


def _form(inside: str) -> str:
    """Return the path of a text without storage suffixes: a.txt, a.xml and a.txt.gz are one text."""
    stem = without_packing(inside)
    suffixes = (*running_text.TEXT_SUFFIXES, ".raw")
    return next((stem[:-len(suffix)] for suffix in suffixes if stem.lower().endswith(suffix)), stem)


def documents(files: Inventory, reader: Reader, tally: Tally, options: TextReadOptions | None = None
              ) -> Iterator[TextDocument]:
    """Yield the documents of all files that are read, in file order; findings are added to `tally`.

    Raises DataError if a stream is damaged or in a format that is not supported.
    """
    options = options or TextReadOptions()
    tally.tokenised = options.tokenised if options.examined else find_tokenised(files, reader, options)
    for source, part in files.sources():
        for document in _read_stream(source, reader, tally, options):
            yield replace(document, part=part)


def _read_stream(source: Source, reader: Reader, tally: Tally, options: TextReadOptions) -> Iterator[TextDocument]:
    kind = reader
    if reader == "auto":
        kind = detect.detect_format(source.name, detect.peek_head(source.stream), options.section)
    match kind:
        case "wiki":
            yield from _read_wiki(source, tally)
        case "tei":
            yield TextDocument(source.name, kind, read_body_text(source))
        case "wikiextractor":
            yield from _read_wikiextractor(source, tally)
        case "jsonl":
            yield from _fields(source.name, kind, json_lines.read_fields(source, options.field), tally)
        case "parquet" | "arrow":
            if not (path := Path(source.name)).is_file():
                raise DataError(f"{source.name}: is in an archive, where {kind} files are not read; unpack the archive")
            read = arrow_tables.read_parquet if kind == "parquet" else arrow_tables.read_arrow
            yield from _fields(source.name, kind, read(path, options.field, options.section), tally)
        case _ if reader == "auto":
            yield _running_text(source, tally, options)
        case _:
            tally.split = tally.split or detect.subword_sign(detect.peek_head(source.stream))
            yield TextDocument(source.name, kind, _decoded_pieces(source, tally), _raw_pieces(source))


def range_documents(path: Path, span: tuple[int, int], reader: Reader, part: str, tally: Tally,
                    options: TextReadOptions) -> Iterator[TextDocument]:
    """Yield the documents in a range of bytes of a file on disk, which begins and ends at line ends.

    For Parquet it is a range of row groups.
    """
    tally.tokenised = options.tokenised
    if reader == "parquet":                                  # a range of row groups
        texts = arrow_tables.read_parquet(path, options.field, options.section, span)
        yield from (replace(document, part=part) for document in _fields(str(path), reader, texts, tally))
        return
    with open_range(path, *span) as source:
        for document in _read_stream(source, reader, tally, options):
            yield replace(document, part=part)


def find_tokenised(files: Inventory, reader: Reader, options: TextReadOptions) -> tuple[str, str] | None:
    """Return one of the first streams that is tokenised, and a mark in it; it decides for all streams."""
    if reader != "auto" or options.plain:
        return None
    for source, _ in itertools.islice(files.sources(), MAX_EXAMINED):
        head = detect.peek_head(source.stream)
        mark = detect.tokenised_mark(head)
        if mark is not None and not detect.subword_sign(head) and \
                detect.detect_format(source.name, head, options.section) == "text":
            return source.name, mark
    return None


def _running_text(source: Source, tally: Tally, options: TextReadOptions) -> TextDocument:
    """Return a document of running text; subwords are joined, and tags are reported."""
    head = detect.peek_head(source.stream)
    if (tag := detect.find_tag(head)) is not None:
        tally.tagged = tally.tagged or (source.name, tag)
    sign = detect.subword_sign(head)
    if not options.plain and sign is not None:
        tally.joined = tally.joined or (source.name, sign)
        return TextDocument(source.name, "text", subwords.join_subwords(_decoded_pieces(source, tally), sign))
    tally.split = tally.split or sign
    kind: Reader = "tokens" if tally.tokenised else "text"
    return TextDocument(source.name, kind, _decoded_pieces(source, tally), _raw_pieces(source))


def remove_tags(text: str) -> str:
    """Remove the tags of `word/tag` and `word_TAG`."""
    return _TAG.sub("", text)


def _decoded_pieces(source: Source, tally: Tally) -> Iterator[str]:
    first = source.begin == 0
    if first:
        _refuse_wide(source)
    text = _decoded(source.stream) if first else io.TextIOWrapper(source.stream, encoding="utf-8", errors="replace")
    while piece := text.read(CHUNK):
        if first:
            _refuse_binary(source, piece)
        first = False
        tally.add(source.name, piece.count("\ufffd"), piece.count("\0"))
        yield piece.replace("\0", " ")


def _raw_pieces(source: Source) -> Iterator[bytes]:
    """Yield the text of _decoded_pieces as bytes: with invalid UTF-8 and NULs, which are not yet counted."""
    if source.begin == 0:
        _refuse_wide(source)
        first = source.stream.read(4 * CHUNK + 8)  # at least CHUNK characters
        _refuse_binary(source, _decoded(io.BytesIO(first)).read(CHUNK))
        # Python's decoder takes an incomplete byte order mark at the end of a stream for a complete one.
        first = b"" if codecs.BOM_UTF8.startswith(first) else first.removeprefix(codecs.BOM_UTF8)
        yield from (first[i:i + CHUNK] for i in range(0, len(first), CHUNK))
    while piece := source.stream.read(CHUNK):
        yield piece


def _decoded(stream: IO[bytes]) -> io.TextIOWrapper:
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace")


def _refuse_wide(source: Source) -> None:
    if (head := source.stream.peek(4)[:4]).startswith(UTF16_MARKS):
        raise DataError(f"{source.name}: is UTF-16 or UTF-32; {encoding_hint(head)}")


def _refuse_binary(source: Source, first: str) -> None:
    if len(first) >= 1000 and len(CONTROL.findall(first)) > MAX_BINARY_SHARE * len(first):
        raise DataError(f"{source.name}: is probably not UTF-8 text; convert it, or remove it")


def _fields(name: str, kind: Reader, texts: Iterator[str | None], tally: Tally) -> Iterator[TextDocument]:
    """Yield a document for each text; a row without one is counted."""
    for number, text in enumerate(texts, 1):
        if text is None:
            tally.missing += 1
            tally.where = tally.where or name
        else:
            tally.add(name, text.count("\ufffd"), text.count("\0"))
            yield TextDocument(f"{name}#{number}", kind, iter([text.replace("\0", " ")]))


def _read_wikiextractor(source: Source, tally: Tally) -> Iterator[TextDocument]:
    """Yield the articles of WikiExtractor, without the lines <doc ...> and </doc>; entities are resolved."""
    text = _decoded(source.stream)
    lines = enumerate(iter(lambda: text.readline(CHUNK), ""), 1)
    number, line = 0, ""

    def article() -> Iterator[str]:
        nonlocal number, line
        for number, line in lines:
            if line.rstrip() == "</doc>":
                return
            if _DOC.match(line):
                raise DataError(f"{source.name}:{number}: a <doc> before the </doc> of the previous one; check that "
                                "the file is complete")
            tally.add(source.name, line.count("\ufffd"), line.count("\0"))
            yield html.unescape(line).replace("\0", " ")
        raise DataError(f"{source.name}:{number}: ends before </doc>; check that the file is complete")

    for number, line in lines:
        if _DOC.match(line):
            title = _TITLE.search(line)
            yield TextDocument(f"{source.name}#{title[1] if title else number}", "wikiextractor", article())
        elif line.strip():
            raise DataError(f"{source.name}:{number}: text outside <doc ...> and </doc>; give the output of "
                            "WikiExtractor")


def _read_wiki(source: Source, tally: Tally) -> Iterator[TextDocument]:
    """Yield the articles of a dump; a page that is skipped is counted."""
    for title, text in _articles(source):
        if text:
            yield TextDocument(f"{source.name}#{title}", "wiki", iter([text]))
        else:
            tally.skip_page(source.name)


def _articles(source: Source) -> Iterator[tuple[str, str]]:
    """Yield the result of `_article` for each page, by several processes if the dump is large."""
    pages = _pages(source)
    if source.size < PARALLEL_BYTES:
        yield from map(_article, pages)
        return
    from gensim.corpora.wikicorpus import init_to_ignore_interrupt

    with multiprocessing.Pool(min(4, multiprocessing.cpu_count()), init_to_ignore_interrupt) as pool:
        while group := list(itertools.islice(pages, 256)):  # imap would read ahead through the whole dump
            yield from pool.imap(_article, group, chunksize=8)


def _pages(source: Source) -> Iterator[tuple[str, str]]:
    """Yield (title, markup) of each page. WikiCorpus itself hangs on a damaged dump; its parts do not."""
    from gensim.corpora.wikicorpus import extract_pages

    try:
        for title, text, _ in extract_pages(source.stream, ("0",)):
            yield title or "", text
    except ParseError as error:
        raise DataError(f"{source.name}:{error.position[0]}: {error}; expected a MediaWiki dump") from error
    except (LookupError, ValueError, AttributeError) as error:
        if "coding" in str(error):
            raise xml.encoding_error(source, error) from error
        # Another name space; a page without title, id or text.
        raise DataError(f"{source.name}: not a MediaWiki dump ({error})") from error


def _article(page: tuple[str, str]) -> tuple[str, str]:
    """Return title and text without markup; an empty text if WikiCorpus would drop the page."""
    from gensim.corpora.wikicorpus import ARTICLE_MIN_WORDS, IGNORED_NAMESPACES, tokenize

    from embtrain.data.formats.wiki_markup import text_of

    title, markup = page
    if any(title.startswith(f"{space}:") for space in IGNORED_NAMESPACES):
        return title, ""
    text = text_of(markup)
    return title, text.replace("\n", " ") if len(tokenize(text)) >= ARTICLE_MIN_WORDS else ""

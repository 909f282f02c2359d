"""Detect the format of a text file by its first bytes.

detect_format   text, or a format with its own reader; other markup and JSON are rejected, since the names of their
                tags and fields would become words
tokenised_mark  a mark (<unk>) of running text that is already tokenised
subword_sign    the sign of running text that is split into subwords
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from typing import Any, Literal, get_args

from embtrain.common.errors import DataError
from embtrain.data.storage.encoding import UTF16_MARKS

TextFormat = Literal["text", "tei", "wiki", "wikiextractor"]
Subwords = Literal["@@", "▁", "##", "￭"]
HEAD_BYTES = 1 << 16      # bytes by which the format is detected
REFUSED_TAG_SHARE = 0.05  # least share of characters in tags of a text that is rejected
WARNED_TAG_SHARE = 0.002  # and of a text with a warning
MIN_TAGS = 4              # a text with fewer tags only mentions them
_UNKNOWN_SHARE = 0.001    # of the words of a tokenised text are marks
_ATTACHED_SHARE = 0.005   # words that end in a sign; prose has 10 %
_ELEMENT = re.compile(r"<([A-Za-z_][\w.:-]*)((?:\s[^<>]*)?)>")
_TAG = re.compile(r"<(/?)([A-Za-z_][\w.:-]*)((?:\s[^<>]*)?/?)>")
_TEI = re.compile(r"<(?:[\w.-]+:)?(?:TEI|teiCorpus)(?:\.2)?[\s>]")
_ATTRIBUTE = re.compile(r"[\w:.-]\s*=\s*[\"'\w]")
_JSON = re.compile(r"\{\s*(?:\"[^\"\n]*\"\s*:|\})|\[\s*(?:\{\s*\"|\"[^\"\n]*\"\s*[,\]]|\[|-?\d[\d.eE+-]*\s*,)")
_SPECIAL = re.compile(r"(?:<|\[)/?(?:unk|eos|bos|s|pad|oov|num)(?:>|\])", re.IGNORECASE)
_ATTACHED = re.compile(r"\w[,;:?!]")
_TABLES = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}  # the last: a stream
_OTHER_FORMATS = {"%PDF-": "a PDF; save its text", "{\\rtf": "RTF; save it as plain text",
                  "%!PS": "PostScript; save its text"}


def peek_head(stream: io.BufferedReader[Any]) -> bytes:
    """Return the next HEAD_BYTES of a stream, which is not moved."""
    return stream.peek(HEAD_BYTES)[:HEAD_BYTES]


def decode_head(head: bytes) -> str:
    """Decode the first bytes without a byte order mark; invalid characters are dropped."""
    return head.decode("utf-16" if head.startswith(UTF16_MARKS) else "utf-8-sig", "ignore")


def detect_format(name: str, head: bytes, section: str) -> TextFormat:
    """Return the format of the stream `name`. section: of the settings that contain the key `format`, for errors.

    Raises DataError if the text is markup or JSON without a reader, or must be named explicitly.
    """
    for magic, table in _TABLES.items():
        if head.startswith(magic) and b"\0" in head:
            raise DataError(f"{name}: is a table ({table.capitalize()}); set {section}.format={table} and "
                            f"{section}.field to the column with the text")
    text = decode_head(head).lstrip()
    if "<mediawiki" in text[:4096]:
        return "wiki"
    if text.startswith("<"):
        if _TEI.search(text):
            return "tei"
        if (root := _root_element(text)) is not None:
            tag, attributes = root
            if tag == "doc" and re.search(r"\bid\s*=", attributes) and "</doc>" not in text.partition("\n")[0]:
                return "wikiextractor"
            if (kind := _markup_kind(text, tag, attributes)) is not None:
                raise DataError(f"{name}: {_refusal(kind, section)}")
    for start, description in _OTHER_FORMATS.items():
        if text.startswith(start):
            raise DataError(f"{name}: is {description}")
    if _JSON.match(text):
        raise DataError(f"{name}: {_json_hint(text, section)}")
    if (share := _tag_share(text)) is not None and share >= REFUSED_TAG_SHARE:
        raise DataError(f"{name}: {_refusal(f'markup: {share:.0%} of its first characters are tags', section)}")
    return "text"


def find_tag(head: bytes) -> str | None:
    """Return a tag of a text with a few tags; None if there are none, or too few to matter."""
    text = decode_head(head)
    share = _tag_share(text)
    if share is None or share < WARNED_TAG_SHARE:
        return None
    return next(tag.group() for tag in _TAG.finditer(text) if _is_certain_tag(tag))


def tokenised_mark(head: bytes) -> str | None:
    """Return the mark of tokenised text: <unk>, <eos>, <s> and others between blanks; None for other text.

    A text that mentions a mark now and then has signs attached to its words, which tokenised text has not.
    """
    words = decode_head(head).split()
    marks = [word for word in words if _SPECIAL.fullmatch(word)]
    attached = sum(_ATTACHED.fullmatch(word[-2:]) is not None for word in words)
    if len(marks) > _UNKNOWN_SHARE * len(words) and attached <= _ATTACHED_SHARE * len(words):
        return marks[0]
    return None


def subword_sign(head: bytes) -> Subwords | None:
    """Return the sign of the subwords that a text begins with; None for words."""
    text = decode_head(head)
    if not any(sign in text for sign in get_args(Subwords)):  # an archive may have thousands of texts
        return None
    return subword_sign_in_words(text.split())


def subword_sign_in_words(words: Sequence[str], counts: Sequence[float] | None = None) -> Subwords | None:
    """Return the sign of subwords if it marks more than 1 % of the words, else None.

    The signs are those of BPE (@@), SentencePiece (▁), WordPiece (##) and a joiner (￭). counts: (V,) occurrences of
    the words; None: one of each.
    """
    weighted = [*zip(words, [1] * len(words) if counts is None else counts, strict=True)]
    marked: dict[Subwords, float] = {
        "@@": sum(n for word, n in weighted if len(word) > 2 and word.endswith("@@")),
        "##": sum(n for word, n in weighted if re.match(r"##\w", word)),
        "￭": sum(n for word, n in weighted if len(word) > 1 and "￭" in (word[0], word[-1])),
        "▁": sum(n for word, n in weighted if word.startswith("▁")) // 10}  # most words begin with it
    sign, n_marked = max(marked.items(), key=lambda item: item[1])
    return sign if n_marked > 0.01 * sum(n for _, n in weighted) else None


def _root_element(text: str) -> tuple[str, str] | None:
    """Return name and attributes of the first element after declarations, comments and a document type."""
    position = 0
    while True:
        position += len(text[position:position + 4096]) - len(text[position:position + 4096].lstrip())
        for begin, end in (("<?", "?>"), ("<!--", "-->"), ("<!", ">")):
            if text.startswith(begin, position):
                subset, stop = text.find("[", position), text.find(end, position)
                if begin == "<!" and -1 < subset < stop:  # a document type with an internal subset
                    stop = text.find(">", max(text.find("]", subset), position))
                if stop < 0:
                    return "?", ""
                position = stop + len(end)
                break
        else:
            match = _ELEMENT.match(text, position)
            if position and position >= len(text):  # only declarations
                return "?", ""
            return None if match is None else (match[1], match[2])


def _markup_kind(text: str, tag: str, attributes: str) -> str | None:
    """Return the kind of markup that begins with this element; None if it may be a word (<unk>)."""
    lower = text[:64].lower()
    if lower.startswith("<!doctype html") or tag.lower() == "html":
        return "HTML"
    if lower.startswith(("<?xml", "<!")):
        return "XML" if tag == "?" else f"XML with the root <{tag}>"
    line = text.partition("\n")[0].rstrip()
    is_alone = line.endswith(">") and _ELEMENT.fullmatch(line) is not None and f"</{tag}>" in text
    if _SPECIAL.fullmatch(f"<{tag}>"):
        return None
    if is_alone or _ATTRIBUTE.search(attributes) or (_tag_share(text, 2) or 0) >= REFUSED_TAG_SHARE:
        return f"markup that begins with <{tag}>"
    return None


def _refusal(kind: str, section: str) -> str:
    tool = "pandoc -t plain" if kind == "HTML" else "xmlstarlet or a few lines of Python"
    return (f"is {kind}, and tag names are not words; extract its text, e.g. with {tool}, or set {section}.format=text "
            "to read the tags as words")


def _json_hint(text: str, section: str) -> str:
    line = text.partition("\n")[0]
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        is_cut = record is None and text.startswith("{") and not line.rstrip().endswith(("{", "[", ","))
        if is_cut:  # one line longer than the head, or a damaged one, which the reader reports with its number
            return f"is JSON; set {section}.format=jsonl and {section}.field to the field that contains the text"
        return ("is JSON, but not one object a line; convert it, e.g. with jq -c '.[]', and set "
                f"{section}.format=jsonl")
    names = [name for name, value in record.items() if isinstance(value, str | list)]
    field = "text" if "text" in names or not names else max(names, key=lambda name: len(str(record[name])))
    return (f"is JSON lines; set {section}.format=jsonl and {section}.field={field} to read one field of each object "
            f"(its fields: {', '.join(map(str, list(record)[:10]))})")


def _tag_share(text: str, min_tags: int = MIN_TAGS) -> float | None:
    """Return the share of characters in tags; None if there are fewer than `min_tags` tags.

    <unk> and <s> ... </s> of tokenised text are not markup: an element counts if one of its tags is an end tag, is
    empty, or has attributes, and if it is not a known mark.
    """
    tags = [tag for tag in _TAG.finditer(text) if not _SPECIAL.fullmatch(tag.group())]
    certain = {tag[2] for tag in tags if _is_certain_tag(tag)}
    sizes = [len(tag.group()) for tag in tags if tag[2] in certain]
    return sum(sizes) / len(text) if len(sizes) >= min_tags else None


def _is_certain_tag(tag: re.Match[str]) -> bool:
    return not _SPECIAL.fullmatch(tag.group()) and bool(
        tag[1] or tag[3].endswith("/") or _ATTRIBUTE.search(tag[3]))

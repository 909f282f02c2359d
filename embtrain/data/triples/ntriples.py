"""N-Triples parser: `subject predicate object .` on each line (W3C Recommendation of 25 February 2014, section 7).

    <iri>  _:blank  "literal"  "literal"@language  "literal"^^<iri>        # comment

The name of an entity is its IRI without angle brackets and with escapes resolved, or `_:label`. Blank nodes with the
same label are one entity in all files of a graph. The name of a literal is its canonical N-Triples form, which contains
no control characters. A comment needs no blank after `#`.

The grammar is regular, so one bounded regular expression parses a line. rdflib would have no other use here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from embtrain.common.errors import DataError
from embtrain.data.storage.containers import PACKED, Source
from embtrain.data.storage.lines import read_lines

LONGEST = 1 << 20  # bytes of a line: a literal can be a whole abstract
_HEX = "[0-9A-Fa-f]"
_UCHAR = rf"\\u{_HEX}{{4}}|\\U{_HEX}{{8}}"
_BASE = ("A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f"
         "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff")
_IN_LABEL = rf"[{_BASE}_0-9\u00b7\u0300-\u036f\u203f-\u2040-]"
# Possessive quantifiers: a malformed line is rejected in one pass.
_IRI = rf"<((?:[^\x00-\x20<>\"{{}}|^`\\]|{_UCHAR})*+)>"
_BLANK = rf"_:[{_BASE}_0-9](?:\.*+{_IN_LABEL})*+"
_STRING = rf"\"((?:[^\"\\\n\r]|\\[tbnrf\"'\\]|{_UCHAR})*+)\""
_LITERAL = rf"{_STRING}(?:\^\^{_IRI}|@([A-Za-z]+(?:-[A-Za-z0-9]+)*+))?+"
_TRIPLE = re.compile(rf"[ \t]*+(?:{_IRI}|({_BLANK}))[ \t]*+{_IRI}[ \t]*+(?:{_IRI}|({_BLANK})|{_LITERAL})"
                     rf"[ \t]*+\.[ \t]*+(?:#.*)?+")
_NOTHING = re.compile(r"[ \t]*+(?:#.*)?+")
_ESCAPE = re.compile(r"\\(?:u(.{4})|U(.{8})|(.))")
_ECHAR = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
_WRITTEN = {"\t": r"\t", "\b": r"\b", "\n": r"\n", "\r": r"\r", "\f": r"\f", '"': r"\"", "\\": r"\\"}
_NO_IRI = re.compile(r"[\x00-\x20<>\"{}|^`\\]")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\"\\]")
_LIKE = re.compile(r"[ \t]*(?:<[^>]*>|_:\S+)[ \t]*<[^>]*>.*\.[ \t]*(?:#.*)?", re.DOTALL)


@dataclass(frozen=True)
class Statement:
    """One parsed triple."""

    number: int            # line number
    subject: str
    predicate: str
    object: str
    is_literal: bool       # the object is a literal


def is_ntriples(source: Source) -> bool:
    """Return whether a stream is N-Triples, by its suffix or by its first line that is not a comment."""
    name = source.name.lower()
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    if name.endswith(".nt"):
        return True
    head = source.stream.peek(1 << 14)[:1 << 14].decode("utf-8-sig", "replace")
    lines = [line for line in head.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and _LIKE.fullmatch(lines[0]) is not None


def statements(source: Source) -> Iterator[Statement]:
    """Yield every triple of a stream. DataError names a malformed line."""
    for number, text in read_lines(source, LONGEST, "check that it is N-Triples"):
        for line in text.split("\r"):                       # a lone carriage return also ends a line
            if _NOTHING.fullmatch(line):
                continue
            where = f"{source.name}:{number}"
            if (match := _TRIPLE.fullmatch(line)) is None:
                raise DataError(
                    f"{where}: is not a triple of N-Triples: {_syntax_error(line)}, found {line.strip()[:80]!r}"
                )
            subject, blank, predicate, iri, blank_object, string, kind, language = match.groups()
            name = _iri(iri, where) if iri is not None else blank_object
            if string is not None:
                name = _literal(string, kind, language, where)
            yield Statement(number, blank or _iri(subject, where), _iri(predicate, where), name, string is not None)


def _iri(text: str, where: str) -> str:
    name = _unescaped(text, where)
    if _NO_IRI.search(name):
        raise DataError(f"{where}: <{text}>: an escape denotes a character that an IRI cannot contain; write it in "
                        "percent encoding")
    if not _ABSOLUTE.match(name):
        raise DataError(f"{where}: <{text}>: is not an absolute IRI; begin it with a scheme, e.g. http:")
    return name


def _literal(text: str, kind: str | None, language: str | None, where: str) -> str:
    name = _CONTROL.sub(lambda c: _WRITTEN.get(c[0]) or f"\\u{ord(c[0]):04X}", _unescaped(text, where))
    suffix = f"^^<{_iri(kind, where)}>" if kind is not None else f"@{language.lower()}" if language is not None else ""
    return f'"{name}"{suffix}'


def _unescaped(text: str, where: str) -> str:
    if "\\" not in text:
        return text

    def char(match: re.Match[str]) -> str:
        digits = match[1] or match[2]
        if digits is None:
            return _ECHAR[match[3]]
        code = int(digits, 16)
        if code > 0x10ffff or 0xd800 <= code <= 0xdfff:
            raise DataError(f"{where}: {match[0]} is not a character; escape only Unicode scalar values")
        return chr(code)
    return _ESCAPE.sub(char, text)


def _syntax_error(line: str) -> str:
    """Describe the first malformed term of a line."""
    rest = line.strip(" \t")
    if re.match(r"@prefix|@base|prefix\s|base\s", rest, re.IGNORECASE):
        return "this is Turtle; convert it, e.g. with rapper -i turtle -o ntriples FILE"
    node = rf"{_IRI}|{_BLANK}"
    for expected, pattern in (("an IRI <...> or a blank node _:label as subject", node),
                              ("an IRI <...> as predicate", _IRI),
                              ('an IRI <...>, a blank node or a literal "..." as object', rf"{node}|{_LITERAL}")):
        if (match := re.match(pattern, rest)) is None:
            return f"expected {expected} at character {len(line) - len(rest) + 1}"
        rest = rest[match.end():].lstrip(" \t")
    if re.match(rf"(?:{node})[ \t]*\.", rest):
        return "it has four terms: this is N-Quads; remove the graph name"
    return f"expected the end ` .` at character {len(line) - len(rest) + 1}"

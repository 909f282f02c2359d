"""The text of <body> in a TEI file: one line a paragraph, without notes, with words intact.

A TEI file has blanks only where its encoder put them, so the elements decide where words end:

block    <p>, <l>, <head>, <item>, <cell>, <speaker>, <div> and others: a line ends before and after it
phrase   <s>, <q>, <quote>, <said>, <stage> and others: a blank before and after it; a separate line outside of lines
word     <w>, <pc>: a blank before and after it, except if part="I", "M" or "F" marks a continued word
break    <lb/>, <pb/>, <cb/>, <gb/>, <milestone/>: a blank; with break="no" none, and adjacent blanks are removed
skipped  headers, notes, page headers, descriptions of figures, deletions
Any other element is part of the word around it. Of <choice> the corrected, regular or expanded form is read, of <app>
the lemma; else the first form. A <teiCorpus> is read as one document.
"""

from __future__ import annotations

from collections.abc import Iterator

from embtrain.data.formats import xml
from embtrain.data.storage.containers import Source

_LINES = frozenset(["p", "l", "head", "ab", "item", "cell", "trailer", "label", "opener", "closer", "salute", "signed",
                    "byline", "dateline", "speaker", "u", "castItem", "addrLine", "titlePart", "docAuthor", "docDate",
                    "docImprint", "bibl", "imprimatur", "eg"])  # contain words
_BLOCKS = _LINES | {"body", "div", *(f"div{i}" for i in range(1, 8)), "lg", "sp", "list", "table", "row", "figure",
                    "floatingText", "group", "text", "castList", "castGroup", "epigraph", "argument", "postscript",
                    "address", "docTitle", "listBibl", "entry", "entryFree", "superEntry", "sense", "form"}
_PHRASES = frozenset(["s", "q", "quote", "said", "cit", "stage", "phr", "cl", "space", "def", "orth", "gramGrp", "pos",
                      "etym", "usg", "xr", "role", "roleDesc", "actor", "formula", "kinesic", "vocal", "writing"])
_BREAKS = frozenset(["lb", "pb", "cb", "gb", "milestone"])
_SKIPPED = frozenset(["teiHeader", "note", "noteGrp", "fw", "figDesc", "desc", "del", "standOff"])
_ONE_OF = frozenset(["choice", "app"])                           # alternative forms of a word, one of which is read
_NO_TEXT = _ONE_OF | {"subst"}                                   # blanks between the elements inside are not text
_PREFERRED = frozenset(["corr", "reg", "expan", "lem"])


def read_body_text(source: Source) -> Iterator[str]:
    """Yield the text of every <body> in pieces, its lines ended by line feeds.

    Raises DataError if the file is not well-formed XML, or declares entities.
    """
    parser, body = xml.create_parser(source), _Body()
    parser.StartElementHandler, parser.EndElementHandler = body.start, body.end
    parser.CharacterDataHandler = body.characters
    for _ in xml.feed(source, parser, "a TEI file"):
        yield body.take_text()
    yield body.take_text(is_last=True)


class _Body:
    """Collects the text of elements."""

    def __init__(self) -> None:
        self._texts: list[list[str]] = [[]]            # the outermost, and one for each open form
        self._forms: list[list[tuple[bool, str]]] = []  # forms of each open <choice> or <app>
        self._open: list[tuple[str, str, bool]] = []    # name ("": not read), part of a word, whether it is a line
        self._bodies = self._skipped = self._lines = 0
        self._joins = False                            # the next text continues the last word

    def start(self, name: str, attributes: dict[str, str]) -> None:
        name, part = name.rpartition("}")[2], attributes.get("part", "")
        outer = self._open[-1][0] if self._open else ""
        self._bodies += name == "body"
        self._skipped += name in _SKIPPED
        if not self._is_read:
            self._open.append(("", "", False))
            return
        is_line = name in _LINES or (name in _PHRASES and self._lines == 0)
        self._open.append((name, part, is_line))
        self._lines += is_line
        if outer in _ONE_OF:
            self._texts.append([])
        if name in _ONE_OF:
            self._forms.append([])
        if name in _BREAKS and attributes.get("break") == "no":
            self._join()
        elif is_line or name in _BLOCKS:
            self._separate("\n")
        elif name in _PHRASES or name in _BREAKS or (name in ("w", "pc") and part not in ("M", "F")):
            self._separate(" ")

    def end(self, name: str) -> None:
        name = name.rpartition("}")[2]
        read, part, is_line = self._open.pop()
        if read:
            self._lines -= is_line
            if is_line or name in _BLOCKS:
                self._separate("\n")
            elif name in _PHRASES or (name in ("w", "pc") and part not in ("I", "M")):
                self._separate(" ")
            if name in _ONE_OF and (forms := self._forms.pop()):
                self._put(next((text for is_preferred, text in forms if is_preferred), forms[0][1]))
            if self._open and self._open[-1][0] in _ONE_OF:
                self._forms[-1].append((name in _PREFERRED, "".join(self._texts.pop())))
        self._bodies -= name == "body"
        self._skipped -= name in _SKIPPED

    def characters(self, data: str) -> None:
        if self._is_read and self._open[-1][0] not in _NO_TEXT:
            self._put(data.replace("\n", " "))

    def take_text(self, is_last: bool = False) -> str:
        """Return and remove the text so far; trailing blanks stay, since a break may remove them."""
        if len(self._texts) > 1 and not is_last:
            return ""
        text = "".join(self._texts[0])
        kept = text if is_last else text.rstrip()
        self._texts[0][:] = [text[len(kept):]]
        return kept

    @property
    def _is_read(self) -> bool:
        return self._bodies > 0 and self._skipped == 0

    def _put(self, text: str) -> None:
        text = text.lstrip() if self._joins else text
        if text:
            self._joins = False
            self._texts[-1].append(text)

    def _separate(self, by: str) -> None:
        self._joins = False
        self._texts[-1].append(by)

    def _join(self) -> None:
        text, last = self._texts[-1], ""
        while text and not (last := text.pop().rstrip()):
            pass
        text.append(last)
        self._joins = True

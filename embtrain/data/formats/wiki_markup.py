"""The text of a page of MediaWiki markup, as gensim's filter_wiki gives it, in a time linear in the page's length.

Several of gensim's patterns search the rest of a page for a closing mark, once for each opening mark. A page of marks
that are never closed, like `[[File:`, `<ref>` or `{|`, then takes the square of its length. Here no search goes
beyond the last mark that can close anything. The result is gensim's, with one exception: the caption of a file
replaces that file, where gensim replaces the first equal text of the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gensim.corpora import wikicorpus
from gensim.utils import decode_htmlentities

ROUNDS = 3  # markup inside markup is removed from the inside out, so many times at most

_LANGUAGE = re.compile(r"\n\[\[[a-z][a-z][\w-]*+:[^:\]]++\]\]")
_FILE = re.compile(r"\[\[(?:[fF]ile:|[iI]mage)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ELEMENTS = tuple(re.compile(rf"<{name}[> ].*?(?:</{name}>|/>)", re.DOTALL) for name in ("ref", "nowiki", "math"))
_TAG = re.compile(r"<[^>]*+>")
_ADDRESS = re.compile(r"\[\w++://[^ \]\n]*+( [^\]\n]*+)?+\]")
_BRACKETS = re.compile(r"\[([^][]*+)\]")
_ROW = re.compile(r"(?:\{\||\|-(?!\d)|\|\})[^\n]*+\n")
_CELL = re.compile(r"(?:(?<=\n )|(?<=\n\n)|(?<=  )|(?<=.\n)|(?<=.\t))[|!]")
_RUN_END = re.compile(r"[][\n]")


def text_of(markup: str) -> str:
    """The text of a page without its markup."""
    text = _without_files(wikicorpus.remove_template(_without_languages(decode_htmlentities(markup))))
    for _ in range(ROUNDS):
        before = text
        text = _up_to("-->", _COMMENT, "", text)
        for name, element in zip(("ref", "nowiki", "math"), _ELEMENTS, strict=True):
            text = _up_to((f"</{name}>", "/>"), element, "", text)
        text = _up_to(">", _TAG, "", text)
        text = wikicorpus.RE_P14.sub("", text)                              # categories
        text = "\n".join(_up_to("]", _ADDRESS, lambda found: found[1] or "", line) for line in text.split("\n"))
        text = _BRACKETS.sub(lambda found: found[1].rpartition("|")[2] if "|" in found[1] else found[0], text)
        text = text.replace("!!", "\n|").replace("|-||", "\n|")
        text = _up_to("\n", _ROW, "\n\n", text)
        text = text.replace("|||", "|\n|").replace("||", "\n|")
        text = wikicorpus.RE_P17.sub("\n", _without_cells(text)).replace("[]", "")
        if text == before:
            break
    return text.replace("[", "").replace("]", "")


def _up_to(closers: str | tuple[str, ...], pattern: re.Pattern[str], by: str | Callable[[re.Match[str]], str],
           text: str) -> str:
    """`text` with `by` for each match, found before the end of the last closer: an opener behind it has none."""
    marks = (closers,) if isinstance(closers, str) else closers
    end = max(at + len(mark) if (at := text.rfind(mark)) >= 0 else 0 for mark in marks)
    return pattern.sub(by, text[:end]) + text[end:]


def _without_languages(text: str) -> str:
    """`text` without the links to other languages at its end, found from the end on: a link contains no `]` but its own
    last two."""
    end = last = len(text) - text.endswith("\n")
    while text.endswith("]]", 0, end):
        before = text.rfind("]", 0, end - 2) + 1
        found = _LANGUAGE.search(text, before, end)
        if found is None:
            break
        end = found.start()
        if end != before:
            break
    return text[:end] + text[last:]


def _without_files(text: str) -> str:
    """`text` with each file or image replaced by its caption: the text between the last `|` and the next `]`."""
    out, begin, copied = [], 0, 0
    while (at := text.find("]", begin)) >= 0:
        begin, first = at + 1, begin
        if text.startswith("]]", at) and (found := _FILE.search(text, first, at)) is not None:
            out += [text[copied:found.start()], text[found.start():at].rpartition("|")[2]]
            begin = copied = at + 2
    return "".join([*out, text[copied:]])


def _without_cells(text: str) -> str:
    """`text` with a line feed for each mark of a table's cell and the text before the last `|` of its run; a run
    ends at a bracket or a line feed."""
    out, copied, run_end, last_bar = [], 0, -1, -1
    for found in _CELL.finditer(text):
        at = found.start()
        if at < copied:
            continue
        if at >= run_end:
            end = _RUN_END.search(text, at)
            run_end = len(text) if end is None else end.start()
            last_bar = text.rfind("|", at, run_end)
        out += [text[copied:at], "\n"]
        copied = max(at, last_bar) + 1
    return "".join([*out, text[copied:]])

"""Citations: the keys of the bibliography, how texts cite them, and links to them in the pages of the site."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

KEY = re.compile(r"\[([a-z]+(?:19|20)\d\d[a-z]?|nce_note)\](?!\()")
# "Rawat et al. 2019", "Kumar and Tsvetkov (2019)", "Duchi, Hazan and Singer 2011": the first author and the year
PREFIX, NAME = "(?:[dD]e |van )", r"[A-Z][^\W\d_A-Z]+(?:-[A-Z][^\W\d_A-Z]+)?"
AUTHORS = re.compile(rf"\b({PREFIX})?({NAME})(?:(?:, {PREFIX}?{NAME})*,? and {PREFIX}?{NAME}| et al\.),? \(?"
                     r"((?:19|20)\d\d)\b")
CODE = re.compile(r"(^```.*?^```$|^ {4}.*?$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
PAGE = Path(__file__).resolve().parents[1] / "science" / "bibliography.md"


def entries() -> list[str]:
    """Return the keys of the bibliography, in the order of the page."""
    return re.findall(r"^\((\w+)\)=$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def cited_keys(text: str) -> set[str]:
    """Return the keys in square brackets in a text."""
    return set(KEY.findall(text))


def cited_authors(text: str) -> set[str]:
    """Return the keys, first author and year, of the citations by name in a text."""
    plain = re.sub(r"\s*\n[\s#>*/]*", " ", text)
    return {plain_key(f"{prefix}{name}{year}") for prefix, name, year in AUTHORS.findall(plain)}


def plain_key(text: str) -> str:
    """Return the text in lower case, without accents, spaces and signs."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return re.sub(r"[^a-z0-9]", "", decomposed.encode("ascii", "ignore").decode())


def linked(page: str) -> str:
    """Return a page in Markdown whose keys link to the bibliography; code stays as it is."""
    parts = CODE.split(page)
    return "".join(part if i % 2 else KEY.sub(r"[\\[\1\\]](#\1)", part) for i, part in enumerate(parts))

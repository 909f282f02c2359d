"""Checks a report page: one self-contained file, every id resolved, no external address, no script but ours."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser

from embtrain.report.render.script import SCRIPT

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</pre></style><b>", "a&b&amp;c", "'quoted'",
           "url(#nowhere)", 'id="loss"', "$x^2$", "$\\frac{$", "\x1b[31mred\x00", "\ud800", "\u202eright",
           "line\nbreak", "日本語", "ภาษาไทย", "x" * 500, "{brace}", "&#60;i&#62;"]
VOID = {"meta", "link", "img", "br", "hr", "input", "base", "wbr", "source", "area", "col", "embed", "track"}


class Page(HTMLParser):
    """Ids, references, tags and text of a page; tags must close in order."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.ids: list[str] = []
        self.references: list[str] = []
        self.outside: list[str] = []
        self.tags: Counter[str] = Counter()
        self.names: set[str] = set()
        self.said: list[str] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.names |= {name for name, _ in attrs}
        for name, value in attrs:
            value = value or ""
            if name == "id":
                self.ids.append(value)
            if name != "aria-label":
                self.references += re.findall(r"url\(#(.*?)\)", value)
            if name in ("href", "src", "xlink:href", "action", "data", "poster", "srcset"):
                (self.references if value.startswith("#") else self.outside).append(value.removeprefix("#"))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts.append(data)
        elif "style" not in self.open:
            self.said.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.said).split())


def checked(text: str) -> Page:
    """Parse a page and check the rules of all pages."""
    page = Page(text)
    assert [i for i, n in Counter(page.ids).items() if n > 1] == []
    assert set(page.references) - set(page.ids) == set()
    assert page.outside == []
    shown = re.sub(r'(<script type="application/json"[^>]*>)[^<]*', r"\1", text)   # names may contain addresses
    assert re.search(r"https?:|//[a-z]|@import|url\((?!#)", shown) is None
    assert "default-src 'none'" in text
    assert not {t for t in page.tags if t in ("img", "link", "iframe", "object", "base", "form")}
    assert not {n for n in page.names if n.startswith("on")}
    *data, script = page.scripts
    assert page.tags["script"] == len(page.scripts) and text.count("<script>") == 1
    assert script == SCRIPT
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in text
    assert text.count('<script type="application/json"') == len(data) <= 1
    assert all(json.loads(part) and not set("<>&") & set(part) for part in data)
    return page

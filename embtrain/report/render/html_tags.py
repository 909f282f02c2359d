"""HTML elements of a page. Text becomes HTML through `text` and nowhere else."""

from __future__ import annotations

import base64
import hashlib
import html

from embtrain.report.format import plain
from embtrain.report.render.css import STYLE
from embtrain.report.render.script import SCRIPT


def page(title: str, body: str) -> str:
    """A complete page without external addresses, which runs no script but that of script.py. `body` is HTML."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
script-src 'sha256-{digest}'">
<title>{text(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{body}</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


def text(value: object) -> str:
    return html.escape(plain(str(value)))


def absent(content: str) -> str:
    return f'<p class="missing">{content}</p>'


def fold(summary: str, content: str) -> str:
    """Content that is shown on demand; `content` is HTML."""
    return f"<details><summary>{text(summary)}</summary>{content}</details>"


def folded_section(name: str, content: str) -> str:
    """The heading and the content of a section that is shown on demand; `content` is HTML."""
    return f'<details class="part"><summary><h2>{text(name)}</h2></summary>{content}</details>'

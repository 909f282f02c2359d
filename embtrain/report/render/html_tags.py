"""HTML elements of a page. Text becomes HTML through `text` and nowhere else."""

from __future__ import annotations

import html

from embtrain.report.format import plain
from embtrain.report.render.css import STYLE


def page(title: str, body: str) -> str:
    """A complete page without scripts or external addresses. `body` is HTML."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{text(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{body}</main>
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

"""HTML elements of a page. Text becomes HTML through `text` and nowhere else."""

from __future__ import annotations

import html
from collections.abc import Sequence

from embtrain.report.format import plain
from embtrain.report.render.css import STYLE


def page(title: str, body: str, style: str = "") -> str:
    """A complete page without scripts or external addresses. `body` is HTML."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{text(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body>
<main>
{body}</main>
</body>
</html>
"""


def text(value: object) -> str:
    return html.escape(plain(str(value)))


def minus(figures: str) -> str:
    """A formatted number with a true minus sign; a dash if there is no value."""
    return figures.replace("-", "−") if figures != "-" else "–"


def missing(file: str, what: str) -> str:
    return absent(f"{what}: this run's folder holds no <code>{text(file)}</code>.")


def absent(content: str) -> str:
    return f'<p class="missing">{content}</p>'


def figure(name: str, caption: str, drawing: str) -> str:
    """`caption` and `drawing` are HTML."""
    return f"<figure><figcaption><b>{text(name)}</b>{caption}</figcaption>{drawing}</figure>"


def fold(summary: str, content: str) -> str:
    """Content that is shown on demand; `content` is HTML."""
    return f"<details><summary>{text(summary)}</summary>{content}</details>"


def grid(head: Sequence[tuple[str, str]], rows: Sequence[str]) -> str:
    """A table that scrolls on narrow screens. head: (name, class); rows: HTML."""
    cells = "".join(f'<th scope="col"{f" class={kind!r}" if kind else ""}>{text(name)}</th>' for name, kind in head)
    return (f'<div class="scroll" tabindex="0"><table><thead><tr>{cells}</tr></thead>'
            f'<tbody>{"".join(rows)}</tbody></table></div>')

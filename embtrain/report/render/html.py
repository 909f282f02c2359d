"""A document as one HTML file: no scripts, no external addresses, all text escaped."""

from __future__ import annotations

from itertools import groupby

from embtrain.report.charts.strategies import swatch
from embtrain.report.comparison.decimals import true_minus
from embtrain.report.format import minus
from embtrain.report.render.document import (
    Block,
    Collapsible,
    Figure,
    Items,
    Paragraph,
    ReportDocument,
    ReportTable,
    RowNote,
    WordNeighbours,
)
from embtrain.report.render.html_tags import absent, fold, page, text


def render(document: ReportDocument) -> str:
    links = " ".join(f'<a href="#{s.key}">{text(s.name)}</a>' for s in document.sections)
    body = "".join(f'<section id="{s.key}"><h2>{text(s.name)}</h2>{_blocks(list(s.blocks))}</section>\n'
                   for s in document.sections)
    verdict = "".join(f"<p>{text(true_minus(sentence))}</p>" for sentence in document.verdict) \
        or absent("No verdict was reached.")
    warnings = "".join(f'<p class="warning" role="alert"><b>Warning:</b> {text(sentence)}</p>\n'
                       for sentence in document.warnings)
    return page(document.heading, f"""<header><h1>{text(document.heading)}</h1>
<p class="name">{text(document.name)}</p>
<div class="verdict">{verdict}</div>
{warnings}<nav>{links}</nav></header>
{body}<footer>{text(document.footer)}</footer>
""")


def _blocks(blocks: list[Block]) -> str:
    """Render blocks; consecutive small figures share a grid, and so do consecutive words without named columns."""
    return "".join(f'<div class="{grid}">{"".join(map(_block, group))}</div>' if grid else "".join(map(_block, group))
                   for grid, group in groupby(blocks, _grid))


def _grid(block: Block) -> str:
    """The class of the grid that a block shares with its neighbours; empty if it has a line of its own."""
    if isinstance(block, Figure) and block.small:
        return "many"
    return "words" if isinstance(block, WordNeighbours) and block.is_unnamed else ""


def _block(block: Block) -> str:
    if isinstance(block, Paragraph):
        kind = f' class="{"note" if block.kind == "drawn" else block.kind}"' if block.kind else ""
        return f"<p{kind}>{text(block.text)}</p>"
    if isinstance(block, Items):
        return f'<ul class="notes">{"".join(f"<li>{text(true_minus(t))}</li>" for t in block.texts)}</ul>'
    if isinstance(block, ReportTable):
        return _table(block)
    if isinstance(block, Figure):
        return _figure(block)
    if isinstance(block, WordNeighbours):
        return _word_neighbours(block)
    if isinstance(block, Collapsible):
        return fold(block.heading, _blocks(list(block.blocks)))
    kind = ' class="wrap"' if block.wrap else ""
    lines = "\n".join(text(line) for line in block.text.splitlines())
    return f"<pre{kind}>{lines}</pre>"


def _table(table: ReportTable) -> str:
    head = "".join(f'<th scope="col"{_kind(kind)}>{text(name)}</th>' for name, kind in table.head)
    rows = []
    for row in table.rows:
        if isinstance(row, str):
            rows.append(f'<tr class="part"><th scope="rowgroup" colspan="{len(table.head)}">'
                        f"<span>{text(row)}</span></th></tr>")
        elif isinstance(row, RowNote):
            rows.append(f'<tr class="about"><td colspan="{len(table.head)}">{text(row.text)}</td></tr>')
        else:
            first, *rest = row
            cells = "".join(f"<td{_kind(kind)}>{text(value)}</td>"
                            for value, (_, kind) in zip(rest, table.head[1:], strict=True))
            rows.append(f'<tr><th scope="row">{text(first)}</th>{cells}</tr>')
    return (f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
            f'<tbody>{"".join(rows)}</tbody></table></div>')


def _kind(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _figure(figure: Figure) -> str:
    legend = "".join(f"<li>{swatch(place)}<bdi>{text(label)}</bdi></li>" for label, place in figure.legend)
    legend = f'<ul class="legend">{legend}</ul>' if legend else ""
    drawings = "".join(figure.drawings)
    if len(figure.drawings) > 1:
        drawings = f'<div class="panels">{drawings}</div>'
    return (f"<figure><figcaption><b>{text(figure.name)}</b>{text(figure.caption)}</figcaption>"
            f"{legend}{drawings}</figure>")


def _word_neighbours(block: WordNeighbours) -> str:
    if block.is_unnamed:
        (_, near, far), = block.columns
        lists = "".join(f"<div><span>{ranks}</span>{_list(words)}</div>" for ranks, words in (("1–5", near),
                                                                                             ("45–50", far)))
        return f'<div class="word"><h3><bdi>{text(block.word)}</bdi></h3><div class="pair">{lists}</div></div>'
    columns = "".join(f"<div><h4>{text(name)}</h4><span>1–5</span>{_list(near)}<span>45–50</span>{_list(far)}</div>"
                      for name, near, far in block.columns)
    return f'<h3><bdi>{text(block.word)}</bdi></h3><div class="strategies">{columns}</div>'


def _list(neighbours: list[tuple[str, float]]) -> str:
    items = "".join(f"<li><bdi>{text(w)}</bdi><span>{minus(f'{c:.2f}')}</span></li>" for w, c in neighbours)
    return f"<ol>{items or '<li>none</li>'}</ol>"

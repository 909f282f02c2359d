"""A document as one HTML file: one script (script.py), no external addresses, all text escaped."""

from __future__ import annotations

from itertools import groupby

from embtrain.report.charts.strategies import swatch
from embtrain.report.comparison.decimals import true_minus
from embtrain.report.format import minus
from embtrain.report.render.document import (
    Block,
    Collapsible,
    Figure,
    GridCell,
    Items,
    Paragraph,
    ReportDocument,
    ReportSection,
    ReportTable,
    RowNote,
    ScoreGrid,
    VectorMap,
    WordNeighbours,
)
from embtrain.report.render.html_tags import absent, fold, folded_section, page, text
from embtrain.report.render.vector_map import vector_map


def render(document: ReportDocument) -> str:
    links = " ".join(f'<a href="#{s.key}">{text(s.name)}</a>' for s in document.sections)
    body = "".join(f'<section id="{s.key}">{_section(s)}</section>\n' for s in document.sections)
    verdict = "".join(f"<p>{text(true_minus(sentence))}</p>" for sentence in document.verdict) \
        or absent("No verdict was reached.")
    warnings = "".join(f'<p class="warning" role="alert"><b>Warning:</b> {text(sentence)}</p>\n'
                       for sentence in document.warnings)
    return page(document.heading, f"""<header><h1>{text(document.heading)}</h1>
<p class="name">{text(document.name)}</p>
<div class="verdict">{verdict}</div>
{warnings}{"" if document.grid is None else _grid_table(document.grid)}<nav aria-label="Sections">{links}</nav></header>
{body}<footer>{text(document.footer)}</footer>
""")


def _section(section: ReportSection) -> str:
    content = _blocks(list(section.blocks))
    return folded_section(section.name, content) if section.is_folded else f"<h2>{text(section.name)}</h2>{content}"


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
    if isinstance(block, VectorMap):
        return vector_map(block)
    if isinstance(block, Collapsible):
        return fold(block.heading, _blocks(list(block.blocks)))
    kind = ' class="wrap"' if block.wrap else ""
    lines = "\n".join(text(line) for line in block.text.splitlines())
    return f'<pre{kind} tabindex="0">{lines}</pre>'


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
    about = text(", ".join(name for name, _ in table.head if name))
    return (f'<div class="scroll" tabindex="0" role="group" aria-label="Table: {about}"><table>'
            f'<thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>')


def _grid_table(grid: ScoreGrid) -> str:
    """The scores, in rows that the buttons of the head sort: data-order is the number, data-first the better end."""
    def head(name: str, first: str, kind: str) -> str:
        return (f'<th scope="col"{_kind(kind)} aria-sort="none" data-first="{first}"><button type="button">{text(name)}'
                '<span aria-hidden="true"></span></button></th>')
    heads = [head("strategy", "ascending", ""), *(
        head(name, "ascending" if is_less_better else "descending", "number")
        for name, is_less_better in zip(grid.measures, grid.less_is_better, strict=True))]
    def cell(cell: GridCell) -> str:
        value = f'<b>{text(cell.value)}</b><span class="unseen"> (best)</span>' if cell.is_best else text(cell.value)
        interval = f' <span class="interval">{text(cell.interval)}</span>' if cell.interval else ""
        return f'<td class="number" data-order="{"" if cell.order is None else cell.order!r}">{value}{interval}</td>'
    rows = "".join(f'<tr><th scope="row" data-order="{text(name)}">{text(name)}</th>{"".join(map(cell, cells))}</tr>'
                   for name, cells in grid.rows)
    return (f'<div class="scroll" tabindex="0" role="group" aria-label="Scores of the strategies">'
            f'<table class="sortable"><caption>{text(grid.caption)}</caption><thead><tr>{"".join(heads)}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>")


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

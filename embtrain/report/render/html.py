"""A document as one HTML file: no scripts, no external addresses, all text escaped."""

from __future__ import annotations

from embtrain.report.charts.strategies import swatch
from embtrain.report.comparison.decimals import true_minus
from embtrain.report.render.document import Block, Figure, Folded, Items, Nearest, ReportDocument, ReportTable, Words
from embtrain.report.render.html_tags import absent, fold, minus, page, text

# Styles that the page of a single run does not need.
EXTRA_STYLE = """
.verdict p{margin:.4rem 0}
.verdict p:first-child{margin-top:0}
ul.said{margin:.6rem 0 1rem;padding-left:1.1rem;max-width:46rem}
ul.said li{display:list-item;margin:.3rem 0}
ul.legend{list-style:none;margin:.2rem 0 .6rem;padding:0;display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;font-size:.875rem}
ul.legend li{display:flex;align-items:center;gap:.45rem;min-width:0;justify-content:flex-start}
ul.legend bdi{overflow-wrap:anywhere}
svg.swatch{width:2.1rem;flex:none;display:block}
tr.part th span{position:sticky;left:0}
.beside{display:grid;grid-template-columns:repeat(auto-fill,minmax(8.6rem,1fr));gap:1rem 1.3rem;margin:.3rem 0 1.6rem;
border-top:1px solid var(--rule);padding-top:.5rem}
.beside h4{font-size:.875rem;font-weight:600;margin:0 0 .2rem;overflow-wrap:anywhere}
.beside div>span{color:var(--faint);font-size:.8rem}
.beside div{break-inside:avoid;min-width:0}
.beside ol+span{display:block;margin-top:.4rem}
.scroll+.scroll,.many+.note,.scroll+.note,.scroll+p{margin-top:1.2rem}
.scroll+h3{margin-top:1.8rem}
thead th{vertical-align:bottom}
thead th.number{white-space:normal}
@media (max-width:40rem){
.beside{grid-template-columns:repeat(2,minmax(0,1fr))}
td.text{min-width:12rem}
tbody th{min-width:4.6rem;max-width:6rem}
}
@media print{table{font-size:8pt}.note{break-after:avoid}.scroll+.note{break-before:avoid;break-after:auto}}
"""


def render(document: ReportDocument) -> str:
    links = " ".join(f'<a href="#{s.key}">{text(s.name)}</a>' for s in document.sections)
    body = "".join(f'<section id="{s.key}"><h2>{text(s.name)}</h2>{_blocks(list(s.blocks))}</section>\n'
                   for s in document.sections)
    verdict = "".join(f"<p>{text(true_minus(sentence))}</p>" for sentence in document.verdict) \
        or absent("No verdict was reached.")
    return page(document.heading, f"""<header><h1>{text(document.heading)}</h1>
<p class="name">{text(document.name)}</p>
<div class="verdict">{verdict}</div>
<nav>{links}</nav></header>
{body}<footer>{text(document.footer)}</footer>
""", EXTRA_STYLE)


def _blocks(blocks: list[Block]) -> str:
    """Render blocks; consecutive small figures share a grid."""
    out, i = [], 0
    while i < len(blocks):
        block = blocks[i]
        if isinstance(block, Figure) and block.small:
            small_figures = []
            while i < len(blocks) and isinstance(small := blocks[i], Figure) and small.small:
                small_figures.append(_figure(small))
                i += 1
            out.append(f'<div class="many">{"".join(small_figures)}</div>')
            continue
        out.append(_block(block))
        i += 1
    return "".join(out)


def _block(block: Block) -> str:
    if isinstance(block, Words):
        kind = f' class="{"note" if block.kind == "drawn" else block.kind}"' if block.kind else ""
        return f"<p{kind}>{text(block.text)}</p>"
    if isinstance(block, Items):
        return f'<ul class="said">{"".join(f"<li>{text(true_minus(t))}</li>" for t in block.texts)}</ul>'
    if isinstance(block, ReportTable):
        return _table(block)
    if isinstance(block, Figure):
        return _figure(block)
    if isinstance(block, Nearest):
        return _nearest(block)
    if isinstance(block, Folded):
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


def _nearest(block: Nearest) -> str:
    columns = "".join(f"<div><h4>{text(name)}</h4><span>1–5</span>{_list(near)}<span>45–50</span>{_list(far)}</div>"
                      for name, near, far in block.columns)
    return f'<h3><bdi>{text(block.word)}</bdi></h3><div class="beside">{columns}</div>'


def _list(neighbours: list[tuple[str, float]]) -> str:
    items = "".join(f"<li><bdi>{text(w)}</bdi><span>{minus(f'{c:.2f}')}</span></li>" for w, c in neighbours)
    return f"<ol>{items or '<li>none</li>'}</ol>"

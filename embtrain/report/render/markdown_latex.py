"""A document as Markdown and as self-contained LaTeX with booktabs; every score as CSV.

All text is escaped. These formats show the tables of figures in place of the drawings.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence

from embtrain.common.terminal import plain
from embtrain.report.load.comparison import Results
from embtrain.report.render.document import (
    Block,
    Code,
    Collapsible,
    Figure,
    GridCell,
    Items,
    Paragraph,
    ReportDocument,
    ReportTable,
    RowNote,
    ScoreGrid,
    TableRow,
    VectorMap,
    WordNeighbours,
)
from embtrain.report.render.escape_markdown import block as fenced, words as _md


def _under(heading: str, blocks: Iterable[str]) -> str:
    """The blocks that have text in this format below their heading; empty if none has."""
    texts = [text for text in blocks if text]
    return "\n\n".join([heading, *texts]) if texts else ""


# --- Markdown --------------------------------------------------------------------------------------------------------

def markdown(document: ReportDocument) -> str:
    out = [f"# {_md(document.heading)}", _md(document.name), *map(_md, document.verdict),
           *(f"**Warning:** {_md(sentence)}" for sentence in document.warnings),
           *([] if document.grid is None else [_md_grid(document.grid)])]
    for section in document.sections:
        out.append(_under(f"## {_md(section.name)}", map(_md_block, section.blocks)))
    return "\n\n".join(text for text in [*out, f"*{_md(document.footer)}*"] if text) + "\n"


def _md_block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return _md(block.text) if block.kind != "drawn" else ""
    if isinstance(block, Items):
        return "\n".join(f"- {_md(t)}" for t in block.texts)
    if isinstance(block, ReportTable):
        return _md_table(block)
    if isinstance(block, Figure):
        return "" if block.data is None else f"### {_md(block.name)}\n\n{_md(block.caption)}\n\n{_md_table(block.data)}"
    if isinstance(block, WordNeighbours):
        return f"### {_md(block.word)}\n\n{_md_table(block.table())}"
    if isinstance(block, VectorMap):
        return _md(block.caption)
    if isinstance(block, Collapsible):
        return _under(f"### {_md(block.heading)}", map(_md_block, block.blocks))
    return fenced("\n".join(block.text.splitlines()))


def _md_table(table: ReportTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"
    out = [line([_md(name) for name, _ in table.head]),
           line(["---:" if kind == "number" else "---" for _, kind in table.head])]
    for row in table.rows:
        if isinstance(row, str | RowNote):
            cell = f"**{_md(row)}**" if isinstance(row, str) else f"*{_md(row.text)}*"
            out.append(line([cell, *[""] * (len(table.head) - 1)]))
        else:
            out.append(line([_md(value) for value in row]))
    return "\n".join(out)


def _md_grid(grid: ScoreGrid) -> str:
    def cell(cell: GridCell) -> str:
        value = f"**{_md(cell.value)}**" if cell.is_best else _md(cell.value)
        return f"{value} {_md(cell.interval)}" if cell.interval else value
    lines = [["strategy", *map(_md, grid.measures)], ["---", *["---:"] * len(grid.measures)],
             *([_md(name), *map(cell, cells)] for name, cells in grid.rows)]
    return "\n".join([*("| " + " | ".join(line) + " |" for line in lines), "", _md(grid.caption)])


# --- LaTeX -----------------------------------------------------------------------------------------------------------

TEX = {"\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
       "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
       "|": r"\textbar{}", '"': r"\textquotedbl{}", "'": r"\textquotesingle{}", "`": r"\textasciigrave{}", "-": "-{}",
       ",": ",{}", "−": r"\ensuremath{-}", "–": r"\textendash{}", "…": r"\ldots{}", "·": r"\textperiodcentered{}",
       "ρ": r"\ensuremath{\rho}", "✓": r"\ensuremath{\surd}", "\u00a0": "~", "\ufffd": "?", "[": "{[}",
       "]": "{]}", "*": "{*}", "/": r"/\allowbreak{}", "=": r"=\allowbreak{}"}
# Letters of the T1 encoding; pdfLaTeX would fail on others, so their code points are shown.
LETTERS = set("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿ"
              "ĄąĆćČčĎďĘęĚěĞğŁłŃńŇňŐőŒœŔŕŘřŚśŞşŠšŤťŮůŰűŸŹźŻżŽž")
PREAMBLE = r"""\documentclass[10pt,a4paper]{article}
\usepackage{iftex}
\ifPDFTeX\usepackage[T1]{fontenc}\usepackage{textcomp}\else\usepackage{fontspec}\fi
\usepackage[landscape,margin=18mm]{geometry}
\usepackage{array,booktabs,longtable}
\setlength{\parindent}{0pt}\setlength{\parskip}{4pt}\setlength{\LTleft}{0pt}\setlength{\emergencystretch}{3em}
\newcolumntype{L}[1]{>{\raggedright\arraybackslash}p{#1}}
\newcolumntype{R}[1]{>{\raggedleft\arraybackslash}p{#1}}
"""
MAX_MEASURES = 4    # columns of the table for a paper
LINE = 250.0        # mm, without the gaps between columns


def latex(document: ReportDocument) -> str:
    body = [rf"\section*{{{_tex(document.heading)}}}", _tex(document.name), *map(_tex, document.verdict),
            *(rf"\textbf{{Warning:}} {_tex(sentence)}" for sentence in document.warnings),
            *([] if document.grid is None else [_tex_grid(document.grid)])]
    for section in document.sections:
        body.append(_under(rf"\subsection*{{{_tex(section.name)}}}", map(_tex_block, section.blocks)))
    text = "\n\n".join(part for part in [*body, rf"\textit{{{_tex(document.footer)}}}"] if part)
    rare = sorted({c for c in text if ord(c) > 126} - LETTERS)
    shown = "".join(rf"\DeclareUnicodeCharacter{{{ord(c):04X}}}{{[U+{ord(c):04X}]}}" + "\n" for c in rare)
    declared = f"\\ifPDFTeX\n{shown}\\fi\n" if shown else ""
    return f"{PREAMBLE}{declared}\\begin{{document}}\n{text}\n\\end{{document}}\n"


def _tex(words: str) -> str:
    return "".join(TEX.get(c, c) for c in plain(words))


def _tex_block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return _tex(block.text) if block.kind != "drawn" else ""
    if isinstance(block, Items):
        return "\n".join([r"\begin{itemize}", *(rf"\item {_tex(t)}" for t in block.texts), r"\end{itemize}"])
    if isinstance(block, ReportTable):
        return _tex_table(block)
    if isinstance(block, Figure):
        return "" if block.data is None else "\n\n".join([rf"\textbf{{{_tex(block.name)}}}", _tex(block.caption),
                                                          _tex_table(block.data)])
    if isinstance(block, WordNeighbours):
        return rf"\textbf{{{_tex(block.word)}}}" + "\n\n" + _tex_table(block.table())
    if isinstance(block, VectorMap):
        return _tex(block.caption)
    if isinstance(block, Collapsible):
        return _under(rf"\textbf{{{_tex(block.heading)}}}", map(_tex_block, block.blocks))
    return _tex_code(block)


def _tex_code(block: Code) -> str:
    lines = []
    for line in map(plain, block.text.splitlines()):
        bare = line.lstrip(" ")
        lines.append(r"\mbox{}" + r"\ " * (len(line) - len(bare)) + _tex(bare))
    return r"{\ttfamily\small\raggedright " + "\\\\\n".join(lines) + r"\par}"


def _tex_table(table: ReportTable) -> str:
    """A longtable, because rows may need several pages; its rules are booktabs'."""
    def line(cells: Sequence[str]) -> str:
        return " & ".join(cells) + r" \\"
    widths = _widths(table)
    columns = "".join(f"{'R' if kind == 'number' else 'L'}{{{width:.1f}mm}}"
                      for (_, kind), width in zip(table.head, widths, strict=True))
    head = line([_tex(name) for name, _ in table.head])
    def row_line(row: TableRow) -> str:
        if isinstance(row, str):
            return rf"\addlinespace\multicolumn{{{len(widths)}}}{{l}}{{\textbf{{{_tex(row)}}}}} \\*"
        if isinstance(row, RowNote):
            return rf"\multicolumn{{{len(widths)}}}{{L{{{sum(widths):.1f}mm}}}}{{\textit{{{_tex(row.text)}}}}} \\"
        return line([_tex(value) for value in row])
    return "\n".join([r"{\footnotesize", rf"\begin{{longtable}}{{{columns}}}", r"\toprule", head, r"\midrule\endhead",
                      r"\bottomrule\endlastfoot", *map(row_line, table.rows), r"\end{longtable}}"])


def _tex_grid(grid: ScoreGrid) -> str:
    """A table of the first measures that needs booktabs alone, to paste into a paper."""
    def tex_cell(cell: GridCell) -> str:
        value = rf"\textbf{{{_tex(cell.value)}}}" if cell.is_best else _tex(cell.value)
        return rf"{value} {{\scriptsize {_tex(cell.interval)}}}" if cell.interval else value
    measures = grid.measures[:MAX_MEASURES]
    head, *rows = (" & ".join(line) + r" \\" for line in [
        ["strategy", *map(_tex, measures)],
        *([_tex(name), *map(tex_cell, cells[:MAX_MEASURES])] for name, cells in grid.rows)])
    return "\n".join([r"\begin{table}[ht]", r"\centering", rf"\caption{{{_tex(grid.caption)}}}",
                      rf"\begin{{tabular}}{{l{'r' * len(measures)}}}", r"\toprule", head, r"\midrule", *rows,
                      r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def _widths(table: ReportTable) -> list[float]:
    """Width of each column in millimetres, from its longest word or its length, within the line."""
    rows = [row for row in table.rows if not isinstance(row, str | RowNote)]
    def longest(i: int, parts: Callable[[str], list[str]]) -> int:
        return max((len(part) for row in rows for part in parts(row[i])), default=1)
    widths = []
    for i, (name, kind) in enumerate(table.head):
        length = longest(i, lambda text: [text])
        head = max((len(word) for word in name.split()), default=1)
        widths.append(3.0 + 1.75 * max(min(length, 70 if kind == "text" else 44), head, min(len(name), 14)))
    available = LINE - 4.3 * len(widths)
    return [width * min(1.0, available / sum(widths)) for width in widths]


# --- CSV -------------------------------------------------------------------------------------------------------------

CSV_HEADER = ("cell", "strategy", "seed", "status", "cpu_seconds", "benchmark", "metric", "value", "low", "high", "n",
              "note")


def to_csv(results: Results) -> str:
    """One line per score of each cell, at full precision; a cell without scores has one line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for cell in results.cells:
        cell_columns = [_cell(cell.name), _cell(cell.strategy), cell.seed, _cell(cell.status),
                        _figure(cell.cpu_seconds)]
        for row in cell.scores:
            figures = map(_figure, (row.value, row.low, row.high))
            writer.writerow([*cell_columns, _cell(row.benchmark), _cell(row.metric), *figures, row.n, _cell(row.note)])
        if not cell.scores:
            writer.writerow([*cell_columns, *[""] * 6, _cell(cell.error or "")])
    return out.getvalue()


def _cell(words: str) -> str:
    """Prefix text that a spreadsheet would interpret as a formula."""
    words = plain(words)
    return f"'{words}" if words[:1] in ("=", "+", "-", "@") else words


def _figure(value: float | None) -> str:
    return "" if value is None else repr(value)

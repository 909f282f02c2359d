"""Reports: a table for the terminal, and one self-contained page per run or comparison.

`table(rows)` fits 80 columns. `write(folder)` reads only the run folder and writes `report.html` (no script, no
network), `report.md` and `report.tex`: the same bytes for the same run.

    load        read run folders and results.json into checked records
    charts      SVG charts
    render      a document as HTML, Markdown or LaTeX
    run         the report of a run
    comparison  the report of a comparison
    diagnosis   the page and the table of a diagnosis
    format.py   numbers, words and tables for terminals and pages
"""

from embtrain.report.format import table
from embtrain.report.run.page import write

__all__ = ["table", "write"]

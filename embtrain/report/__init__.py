"""Reports: a table for the terminal, and one self-contained page per run or comparison.

`table(rows)` fits 80 columns. `write(folder)` reads only the run folder and writes `report.html` (no network),
`report.md` and `report.tex`: the same bytes for the same run.

    load        read run folders and results.json into checked records
    charts      SVG charts
    render      a document as HTML, Markdown or LaTeX
    vector_map  the map of a run's vectors, and their neighbours
    run         the report of a run
    comparison  the report of a comparison
    diagnosis   the page and the table of a diagnosis
    figure_files.py  figures as SVG, PDF and PNG files
    format.py   numbers, words and tables for terminals and pages
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embtrain.report.format import table
    from embtrain.report.run.page import write

__all__ = ["table", "write"]
_MODULES = {"table": "format", "write": "run.page"}  # name -> module that defines it


def __getattr__(name: str) -> Any:
    # Lazy, because the charts of a page import matplotlib and its numbers SciPy: a second that few commands need.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"embtrain.report.{_MODULES[name]}"), name)

"""The report of a run: report.html, report.md and report.tex, from its folder alone.

One document (document.py) is built here; html.py and markdown_latex.py render it. The same run gives the same bytes.
"""

from __future__ import annotations

import shlex
from pathlib import Path, PurePath

from embtrain.common.files import write_text
from embtrain.report.format import minus, number
from embtrain.report.load.run import NeighbourLists, RunRecord, flatten, read
from embtrain.report.render import html, markdown_latex
from embtrain.report.render.document import (
    Block,
    Code,
    Paragraph,
    ReportDocument,
    ReportSection,
    ReportTable,
    WordNeighbours,
    missing_file,
)
from embtrain.report.run import curve_sections, score_section
from embtrain.report.run.summary import named, strategy, verdict

DEPTH = 4            # levels of identity.json that get rows; deeper values are shown as JSON
COMMANDS = ("fit", "resume", "compare", "reproduce", "evaluate")


def write(folder: Path) -> Path:
    """Read the run in `folder` and write its report atomically, report.html last. Returns the path of report.html."""
    report = document(read(Path(folder)))
    files = {"report.md": markdown_latex.markdown(report), "report.tex": markdown_latex.latex(report),
             "report.html": html.render(report)}
    for name, text in files.items():
        write_text(Path(folder) / name, text)
    return Path(folder) / "report.html"


def document(run: RunRecord) -> ReportDocument:
    heading = " · ".join([t for t in (named(run, "model"), strategy(run)) if t]) or run.name
    sections = [ReportSection("scores", "Scores", score_section.blocks(run)),
                ReportSection("curves", "Curves", curve_sections.curves(run.metrics)),
                ReportSection("source", "Negative sampler", curve_sections.source(run.metrics)),
                *([ReportSection("neighbours", "Neighbours", _neighbours(run.neighbours))] if run.expects_neighbours
                  else []),
                ReportSection("configuration", "Configuration", _configuration(run)),
                ReportSection("identity", "Identity", _identity(run)),
                ReportSection("again", "How to reproduce", _rerun(run))]
    # scores that the run itself doubts
    warnings = [row.note for row in run.scores or [] if (row.benchmark, row.metric) == ("training", "warning")]
    return ReportDocument(heading, run.name, [verdict(run)], sections,
                          "Written by embtrain from the files of this run folder.", warnings)


# -- neighbours -----------------------------------------------------------------------------------------------

def _neighbours(neighbours: NeighbourLists | None) -> list[Block]:
    if neighbours is None:
        return [missing_file("neighbours.json", "No neighbours")]
    words = list(dict.fromkeys([*neighbours.near, *neighbours.far]))
    means = []
    if neighbours.far_rank is not None:
        means.append(f"mean frequency rank {number(neighbours.far_rank)}")
    if neighbours.far_pmi is not None:
        means.append(f"mean PMI with the query word {minus(number(neighbours.far_pmi))}")
    out: list[Block] = [Paragraph(f"Neighbours 45–50 over all words: {', '.join(means)}.")] if means else []
    if not words:
        return [*out, Paragraph("No query word was set, or none is in the vocabulary.", "missing")]
    cards = [WordNeighbours(word, [("", neighbours.near.get(word, []), neighbours.far.get(word, []))])
             for word in words]
    return [*out, Paragraph("By cosine, shown next to each word.", "note"), *cards]


# -- reproduction ---------------------------------------------------------------------------------------------

def _configuration(run: RunRecord) -> list[Block]:
    if run.config_text is None:
        return [missing_file("config.yaml", "No configuration")]
    return [Paragraph("All keys of this run, resolved."), Code(run.config_text.expandtabs(2).rstrip("\n"))]


def _identity(run: RunRecord) -> list[Block]:
    if run.identity is None:
        return [missing_file("identity.json", "Corpus and code are unknown")]
    facts = flatten({key: value for key, value in run.identity.items() if key != "argv"}, DEPTH)
    return [ReportTable([("what", ""), ("which", "text")], [[key, value] for key, value in facts.items()])]


def _rerun(run: RunRecord) -> list[Block]:
    if run.identity is None:
        return [missing_file("identity.json", "The command is unknown")]
    argv = run.identity.get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(a, str) for a in argv):
        return [Paragraph("The command is unknown: identity.json has no argv.", "missing")]
    note = "On the same machine, with one thread and the corpus and code above, it gives the same numbers."
    return [Code(_command(argv), wrap=True), Paragraph(note, "note")]


def _command(argv: list[str]) -> str:
    """The command line as typed, whatever the path of the program was."""
    program = PurePath(argv[0]).name
    if program in ("embtrain", "embtrain.exe", "__main__.py"):
        return shlex.join(["embtrain", *argv[1:]])
    return shlex.join(["embtrain", *argv] if program in COMMANDS else argv)

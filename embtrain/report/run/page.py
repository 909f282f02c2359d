"""The report of a run: report.html, report.md and report.tex, from its folder alone.

One document (document.py) is built here; html.py and markdown_latex.py render it. The same run gives the same bytes.
Scores, the main curves, examples of answers, the map of the vectors, the settings that differ from the defaults and
the command are shown; the page folds everything else. A section is left out if the run has nothing for it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
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
from embtrain.report.run import answers_section, curve_sections, score_section, settings_section
from embtrain.report.run.summary import named, strategy, verdict
from embtrain.report.vector_map import entries as map_entries, section as map_section
from embtrain.report.vector_map.entries import Entries

FILES = ("report.md", "report.tex", "report.html")  # in the order in which they are written
DEPTH = 4            # levels of identity.json that get rows; deeper values are shown as JSON
COMMANDS = ("fit", "resume", "compare", "reproduce", "evaluate")
# `fit --config` would read the strategy file again, and check the settings as if the user had set all of them.
FROM_SETTINGS = "mkdir again && cp config.yaml again && embtrain resume again"


def write(folder: Path, check: Callable[[], None] = lambda: None) -> Path:
    """Read the run in `folder` and write its report atomically, report.html last. Returns the path of report.html.

    check: called before anything is written, after the run is read.
    """
    report = document(read(Path(folder)), map_entries.read(Path(folder)))
    texts = (markdown_latex.markdown(report), markdown_latex.latex(report), html.render(report))
    check()
    for name, text in zip(FILES, texts, strict=True):
        write_text(Path(folder) / name, text)
    return Path(folder) / "report.html"


def document(run: RunRecord, entries: Entries | None = None) -> ReportDocument:
    """Return the report of a run. entries: those of its vectors; None: the report has no map."""
    heading = " · ".join([t for t in (named(run, "model"), strategy(run)) if t]) or run.name
    sections = [ReportSection("scores", "Scores", score_section.blocks(run)),
                ReportSection("curves", "Curves", curve_sections.curves(run.metrics)),
                ReportSection("answers", "Examples of answers", answers_section.blocks(run)),
                *([] if entries is None else [map_section.section(run, entries)]),
                ReportSection("again", "How to reproduce", _rerun(run)),
                ReportSection("configuration", "Settings", settings_section.blocks(run)),
                ReportSection("neighbours", "Near and far neighbours", _neighbours(run.neighbours), is_folded=True),
                ReportSection("source", "Negative sampler", curve_sections.source(run.metrics), is_folded=True),
                ReportSection("more", "Further curves", curve_sections.further(run.metrics), is_folded=True),
                ReportSection("identity", "Identity", _identity(run), is_folded=True),
                ReportSection("missing", "Missing files", _missing(run))]
    # scores that the run itself doubts
    warnings = [row.note for row in run.scores or [] if (row.benchmark, row.metric) == ("training", "warning")]
    return ReportDocument(heading, run.name, verdict(run), [section for section in sections if section.blocks],
                          "Written by embtrain from the files of this run folder.", warnings)


def _missing(run: RunRecord) -> list[Block]:
    missing = [("config.yaml", "No settings", run.config is None), ("metrics.jsonl", "No curves", run.metrics is None),
               ("scores.json", "No scores", run.scores is None),
               ("neighbours.json", "No neighbours", run.neighbours is None and run.expects_neighbours),
               ("identity.json", "The command, the corpus and the code are unknown", run.identity is None)]
    return [missing_file(name, lack) for name, lack, is_missing in missing if is_missing]


# -- neighbours -----------------------------------------------------------------------------------------------

def _neighbours(neighbours: NeighbourLists | None) -> list[Block]:
    words = [] if neighbours is None else list(dict.fromkeys([*neighbours.near, *neighbours.far]))
    if neighbours is None or not words:
        return []
    means = []
    if neighbours.far_rank is not None:
        means.append(f"mean frequency rank {number(neighbours.far_rank)}")
    if neighbours.far_pmi is not None:
        means.append(f"mean PMI with the query word {minus(number(neighbours.far_pmi))}")
    out: list[Block] = [Paragraph(f"Neighbours 45–50 over all words: {', '.join(means)}.")] if means else []
    cards = [WordNeighbours(word, [("", neighbours.near.get(word, []), neighbours.far.get(word, []))])
             for word in words]
    return [*out, Paragraph("By cosine, among all words, shown next to each word.", "note"), *cards]


# -- reproduction ---------------------------------------------------------------------------------------------

def _identity(run: RunRecord) -> list[Block]:
    facts = flatten({key: value for key, value in (run.identity or {}).items() if key != "argv"}, DEPTH)
    return [ReportTable([("what", ""), ("which", "text")], [[key, value] for key, value in facts.items()])] \
        if facts else []


def _rerun(run: RunRecord) -> list[Block]:
    if run.identity is None:
        return []
    argv = run.identity.get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(a, str) for a in argv):
        return [Paragraph("The command is unknown: identity.json has no argv.", "missing")]
    command, note = _command(argv), "the corpus and code listed under Identity, it gives the same numbers."
    place = "In the folder of the run, on" if command == FROM_SETTINGS else "On"
    return [Code(command, wrap=True), Paragraph(f"{place} the same machine, with one thread and {note}", "note")]


def _command(argv: list[str]) -> str:
    """The command line as typed, whatever the path of the program was.

    A run that `resume` began, for example one of a comparison, is repeated from its settings.
    """
    program = PurePath(argv[0]).name
    if "resume" in (program, *argv[1:2]):
        return FROM_SETTINGS
    if program in ("embtrain", "embtrain.exe", "__main__.py"):
        return shlex.join(["embtrain", *argv[1:]])
    return shlex.join(["embtrain", *argv] if program in COMMANDS else argv)

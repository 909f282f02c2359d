"""How near sources of negatives come to the exact softmax, what they cost, and how a model's table lies: for Markdown,
JSON, a page; for a terminal: diagnosis_table.py.

One document of plain words, numbers and drawings is made here; hypertext.py and exports.py write it down.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from embtrain.common.files import write_text
from embtrain.evaluate.words.hubness import Hubness
from embtrain.report.charts import strategies as panels
from embtrain.report.charts.seed_bands import Band, front
from embtrain.report.charts.strategies import Mark
from embtrain.report.render import html, markdown_latex
from embtrain.report.render.document import Block, Document, Figure, Items, Score, Section, Table, Words

NEAR = (("KL", "kl"), ("TV", "tv"), ("ESS", "ess"), ("negative masses", "negative"))
GRADIENT = (("bias", "bias"), ("chance", "floor"), ("rmse", "rmse"), ("ms a question", "ms"))
BOUNDS = (("least", "lower"), ("greatest where g ≥ 0", "upper"))
THEOREMS = (("Σ p²/q̄", "chi"), ("gap", "gap"), ("Σ p |1−p_t−p/q̄|", "away"), ("ratio, least", "low"),
            ("ratio, greatest", "high"), ("factor left out", "factor"))
DEFINITIONS = (
    "p is the softmax of the scores without the right answer, q̄ the source's distribution without it. Closeness: means "
    "over the questions; theorems: medians.",
    "KL: Σ p log p/q̄ in nats. TV: ½ Σ |p − q̄|. ESS: 1 / Σ p²/q̄, the share of the draws that are worth something.",
    "bias: ‖E ∇' − ∇‖ of sampled softmax in parts of ‖∇‖, what chance adds taken off; chance: what so many draws would "
    "show where there is no bias; rmse: √E‖∇' − ∇‖², in the same parts. Root mean squares over the questions.",
    "Theorem 1 of Rawat et al. 2019 bounds the bias by its three quantities, here divided by powers of Z; of a source "
    "that may draw the right answer, which counts nothing then, they are of q, not of q̄, with p/q of it 0. Theorem 2: "
    "e^o / (q̄ Z) over what it nears as random Fourier features grow in number, 1 if it is reached; for unit vectors "
    "alone. The factor is what the paper's print leaves out.",
    "Theorem 1's bounds: between which a coordinate of the bias lies, up to o(1/m), in units of the gradient; medians. "
    "The upper one holds for coordinates of a g ≥ 0 alone (g: the right side's sum of p c), and is told for those.",
    "Fewer candidates: the model's own vectors, n of them; the targets of all questions, and others drawn once.",
    "negative masses: the share of the tree's lowest nodes that random features make negative or, where they cannot, "
    "less than their floor; those are drawn by it. ms a question: the time of a draw of m columns for all questions, "
    "by their number; where every candidate is taken, of all scores.",
)


@dataclass(frozen=True)
class Measurement:
    """One strategy at one m. None: is not defined for it."""

    strategy: str
    m: int
    ms: float
    bias: float | None = None
    floor: float | None = None
    rmse: float | None = None
    kl: float | None = None
    tv: float | None = None
    ess: float | None = None
    chi: float | None = None
    gap: float | None = None
    away: float | None = None
    low: float | None = None
    high: float | None = None
    factor: float | None = None
    lower: float | None = None
    upper: float | None = None
    negative: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Size:
    """A strategy before n candidates, at one m."""

    strategy: str
    n: int
    m: int
    ms: float
    bias: float | None = None
    floor: float | None = None


@dataclass(frozen=True)
class Diagnosis:
    run: str
    model: str
    corpus: str
    part: str          # whose pairs the questions are: test or valid
    questions: int
    candidates: int
    draws: int
    threads: int
    lines: Sequence[Measurement]
    table: Hubness | None = None
    growth: Sequence[Size] = ()

    @property
    def strategies(self) -> list[str]:
        return list(dict.fromkeys(line.strategy for line in self.lines))

    @property
    def sizes(self) -> list[int]:
        return list(dict.fromkeys(line.m for line in self.lines))


def write(folder: Path, found: Diagnosis) -> list[Path]:
    """diagnosis.json, .md and .html, each whole. Returns their paths."""
    told = document(found)
    files = {"diagnosis.json": as_json(found) + "\n", "diagnosis.md": markdown_latex.markdown(told),
             "diagnosis.html": html.render(told)}
    for name, text in files.items():
        write_text(folder / name, text)
    return [folder / name for name in files]


def as_json(found: Diagnosis) -> str:
    return json.dumps(asdict(found), indent=1, ensure_ascii=False, allow_nan=False)


def _hubs(table: Hubness) -> Section:
    hubs = Table([("nearest to the mean answer", ""), ("times", "number"), ("cosine", "number")],
                 [[hub.name, f"{hub.count:,.0f}", format_value(hub.cosine)] for hub in table.hubs])
    bands = Table([("right answers", ""), ("rows", "number"), ("cosine to the nearest other", "number")],
                  [[band.name, f"{band.rows:,}", format_value(band.crowding)] for band in table.bands])
    words = f"Two of its {table.rows:,} rows have a cosine of {format_value(table.mean_cosine)} in the mean."
    return Section("table", "How the table lies", [Words(words), hubs, bands])


def document(found: Diagnosis) -> Document:
    gradient: list[Score] = []
    for m in found.sizes:
        gradient.append(f"m = {m:,}")
        gradient += [[line.strategy, *(format_value(getattr(line, key)) for _, key in GRADIENT)]
                     for line in found.lines if line.m == m]
    notes = [f"{line.strategy}: {line.note}." for line in lines_of(found, False) if line.note]
    sections = [] if found.table is None else [_hubs(found.table)]
    if found.lines:
        sections += [Section("cost", "Bias against time", _figures(found)),
                     Section("gradient", "The gradient of sampled softmax", [Table(_head(GRADIENT), gradient)]),
                     Section("closeness", "Closeness to the softmax", [_plain(found, NEAR)]),
                     *_growing(found),
                     Section("theorems", "Theorems 1 and 2", [_plain(found, THEOREMS), *_bounds(found)]),
                     Section("meant", "What is meant", [Items([*DEFINITIONS, *notes])])]
    asked = [f"{found.questions:,} questions of {found.part}", f"{found.draws:,} draws each"] if found.lines else []
    about = " · ".join([found.model, f"on {found.corpus}", f"{found.candidates:,} candidates", *asked,
                        f"{found.threads} thread{'s' * (found.threads != 1)}", found.run])
    title = "Sources of negatives against the softmax" if found.lines else "The table of what is asked for"
    return Document(title, about, _verdict(found), sections,
                    "Written by embtrain from this run's vectors and held-out text. Times are those of this machine.")


def _verdict(found: Diagnosis) -> list[str]:
    out = []
    for m in found.sizes:
        known = [line for line in found.lines if line.m == m and line.bias is not None]
        if not known:
            continue
        best, cheap = min(known, key=lambda x: x.bias or 0.0), min(known, key=lambda x: x.ms)
        unseen = [line for line in known if (line.bias or 0.0) <= (line.floor or 0.0)]
        if len(unseen) > 1:
            names, least = ", ".join(line.strategy for line in unseen), min(unseen, key=lambda x: x.ms)
            text = (f"At m = {m:,} no bias beyond chance is seen with {names}; of these {least.strategy} is the "
                    f"cheapest, {format_value(least.ms)} ms a question")
        else:
            text = (f"At m = {m:,} the gradient is least biased with {best.strategy}: {format_value(best.bias)} of its "
                    f"length, at {format_value(best.ms)} ms a question")
        if cheap not in (best, *unseen):
            text += (f"; {cheap.strategy} is the cheapest of those whose bias is known, {format_value(cheap.bias)} at "
                     f"{format_value(cheap.ms)} ms")
        out.append(text + ".")
    return out


def _figures(found: Diagnosis) -> list[Block]:
    out: list[Block] = []
    for i, m in enumerate(found.sizes):
        marks = [Mark(line.strategy, found.strategies.index(line.strategy), [line.bias], line.bias,
                      costs=[line.ms], cost=line.ms)
                 for line in found.lines if line.m == m and line.bias is not None]
        if not marks:
            continue
        best = front([(mark.cost, mark.mean) for mark in marks], False)
        about = f"bias of the gradient against milliseconds a question at m = {m:,}. " + "; ".join(
            f"{mark.label}: {format_value(mark.cost)} ms, {format_value(mark.mean)}" for mark in marks)
        names = ", ".join(marks[j].label for j in best)
        out.append(Figure(f"Bias against milliseconds, m = {m:,}", f"On the Pareto front: {names}.",
                          [panels.cost(f"bias{i}", about, marks, best, "milliseconds a question")], None,
                          [(mark.label, mark.place) for mark in marks], small=True))
    if not out:
        return [Words("None of these sources states by what its columns are corrected.", "missing")]
    return [Words("Bias in parts of the gradient's length; ringed: no other source is both nearer and cheaper.",
                  "drawn"), *out, Words("The numbers are those of the next table.", "note")]


def _growing(found: Diagnosis) -> list[Section]:
    """What more candidates do to bias and time; nothing where none could be left out."""
    counts = sorted({size.n for size in found.growth})
    if len(counts) < 2:
        return []
    figures: list[Block] = []
    for title, key in (("Bias", "bias"), ("Milliseconds a question", "ms")):
        bands = []
        for place, name in enumerate(found.strategies):
            known = [(size.n, value) for size in found.growth
                     if size.strategy == name and (value := getattr(size, key)) is not None]
            if known:
                x, y = (np.array(column, float) for column in zip(*known, strict=True))
                bands.append(Band(name, place, x, y, y, y, 1, True))
        if bands:
            about = f"{title} against candidates. " + "; ".join(
                f"{band.label}: " + ", ".join(f"{format_value(y)} of {x:,.0f}" for x, y in zip(band.x, band.mean, strict=True))
                for band in bands)
            drawn = panels.banded(f"n-{key}", about, bands, panels.CANDIDATES)
            figures.append(Figure(f"{title} against n", "", [drawn], None,
                                  [(band.label, band.place) for band in bands], small=True))
    rows: list[Score] = [[size.strategy, f"{size.n:,}", format_value(size.bias), format_value(size.floor), format_value(size.ms)]
                       for size in found.growth]
    head = [("strategy", ""), *((name, "number") for name in ("n", "bias", "chance", "ms a question"))]
    words = Words(f"At m = {found.growth[0].m:,}; a source that has learnt stands before all candidates alone.", "note")
    return [Section("growth", "With fewer candidates", [*figures, Table(head, rows), words])]


def _bounds(found: Diagnosis) -> list[Block]:
    rows: list[Score] = [[line.strategy, f"{line.m:,}", *(format_value(getattr(line, key)) for _, key in BOUNDS)]
                       for line in found.lines if line.lower is not None]
    head = [("theorem 1's bounds", ""), ("m", "number"), *((name, "number") for name, _ in BOUNDS)]
    return [Table(head, rows)] if rows else []


def lines_of(found: Diagnosis, each: bool) -> list[Measurement]:
    """All lines; or the first of each strategy, for what does not depend on m."""
    return [line for line in found.lines if each or line.m == found.sizes[0]]


def _plain(found: Diagnosis, columns: Sequence[tuple[str, str]]) -> Table:
    return Table(_head(columns), [[line.strategy, *(format_value(getattr(line, key)) for _, key in columns)]
                                  for line in lines_of(found, False)])


def _head(columns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [("strategy", ""), *((name, "number") for name, _ in columns)]


def format_value(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}".replace("-", "−")

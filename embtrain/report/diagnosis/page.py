"""Report of a diagnosis: samplers against the softmax, their cost, and the geometry of the model's table.

JSON, Markdown and HTML; for a terminal: table.py. One document is built here; html.py and markdown_latex.py render it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from embtrain.common.files import write_text
from embtrain.common.terminal import format_count
from embtrain.evaluate.words.hubness import Hubness
from embtrain.report.charts import strategies as panels
from embtrain.report.charts.seed_bands import SeedBand, pareto_front
from embtrain.report.charts.strategies import Mark
from embtrain.report.render import html, markdown_latex
from embtrain.report.render.document import (
    Block,
    Figure,
    Items,
    Paragraph,
    ReportDocument,
    ReportSection,
    ReportTable,
    TableRow,
)

NEAR = (("KL", "kl"), ("TV", "tv"), ("ESS", "ess"), ("negative masses", "negative"))
GRADIENT = (("bias", "bias"), ("chance", "floor"), ("rmse", "rmse"), ("ms a query", "ms"))
BOUNDS = (("least", "lower"), ("greatest where g ≥ 0", "upper"))
THEOREMS = (("Σ p²/q̄", "chi"), ("gap", "gap"), ("Σ p |1−p_t−p/q̄|", "away"), ("ratio, least", "low"),
            ("ratio, greatest", "high"), ("factor left out", "factor"))
DEFINITIONS = (
    "p is the softmax of the scores without the target, q̄ the source's distribution without it. Closeness: means over "
    "the queries; theorems: medians.",
    "KL: Σ p log p/q̄ in nats. TV: ½ Σ |p − q̄|. ESS: 1 / Σ p²/q̄, the effective share of the draws.",
    "bias: ‖E ∇' − ∇‖ of sampled softmax relative to ‖∇‖, with the chance level subtracted; chance: the value without "
    "bias for the same number of draws; rmse: √E‖∇' − ∇‖², relative as well. Root mean squares over the queries.",
    "Theorem 1 of Rawat et al. 2019 bounds the bias by its three quantities, here divided by powers of Z; for a source "
    "that may draw the target, which then counts as 0, they use q instead of q̄, with p/q = 0 for the target. Theorem "
    "2: e^o / (q̄ Z) over its limit as the number of random Fourier features grows, 1 if it is reached; only for unit "
    "vectors. The factor is missing in the printed paper.",
    "Theorem 1's bounds on a coordinate of the bias, up to o(1/m), in units of the gradient; medians. The upper one "
    "holds only for coordinates with g ≥ 0 (g: the right side's sum of p c), and is given for those.",
    "Fewer candidates: the model's own vectors, n of them; the targets of all queries, and others drawn once.",
    "negative masses: the share of the tree's lowest nodes with a mass that is negative or below the floor because of "
    "random features; these are drawn with their floor. ms a query: the time to draw m negatives for all queries, "
    "divided by their number; for a source that takes every candidate, the time of all scores.",
)


@dataclass(frozen=True)
class Measurement:
    """One strategy at one m. None: not defined for it."""

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
    """A strategy with n candidates, at one m."""

    strategy: str
    n: int
    m: int
    ms: float
    bias: float | None = None
    floor: float | None = None


@dataclass(frozen=True)
class Diagnosis:
    """All results of a diagnosis."""
    run: str
    model: str
    corpus: str
    part: str          # part that the queries are from: test or valid
    queries: int
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


def write(folder: Path, diagnosis: Diagnosis) -> list[Path]:
    """Write diagnosis.json, .md and .html atomically. Returns their paths."""
    report = document(diagnosis)
    files = {"diagnosis.json": as_json(diagnosis) + "\n", "diagnosis.md": markdown_latex.markdown(report),
             "diagnosis.html": html.render(report)}
    for name, text in files.items():
        write_text(folder / name, text)
    return [folder / name for name in files]


def as_json(diagnosis: Diagnosis) -> str:
    return json.dumps(asdict(diagnosis), indent=1, ensure_ascii=False, allow_nan=False)


def _hubs_section(table: Hubness) -> ReportSection:
    hubs = ReportTable([("nearest to the mean candidate", ""), ("times", "number"), ("cosine", "number")],
                       [[hub.name, f"{hub.count:,.0f}", format_value(hub.cosine)] for hub in table.hubs])
    bands = ReportTable([("targets", ""), ("rows", "number"), ("cosine to the nearest other", "number")],
                        [[band.name, f"{band.rows:,}", format_value(band.crowding)] for band in table.bands])
    words = f"Two of its {table.rows:,} rows have a cosine of {format_value(table.mean_cosine)} on average."
    return ReportSection("table", "Geometry of the table", [Paragraph(words), hubs, bands])


def document(diagnosis: Diagnosis) -> ReportDocument:
    gradient: list[TableRow] = []
    for m in diagnosis.sizes:
        gradient.append(f"m = {m:,}")
        gradient += [[line.strategy, *(format_value(getattr(line, key)) for _, key in GRADIENT)]
                     for line in diagnosis.lines if line.m == m]
    notes = [f"{line.strategy}: {line.note}." for line in lines_of(diagnosis, False) if line.note]
    sections = [] if diagnosis.table is None else [_hubs_section(diagnosis.table)]
    if diagnosis.lines:
        sections += [ReportSection("cost", "Bias against time", _figures(diagnosis)),
                     ReportSection("gradient", "The gradient of sampled softmax",
                                   [ReportTable(_head(GRADIENT), gradient)]),
                     ReportSection("closeness", "Closeness to the softmax", [_plain(diagnosis, NEAR)]),
                     *_growth_section(diagnosis),
                     ReportSection("theorems", "Theorems 1 and 2", [_plain(diagnosis, THEOREMS), *_bounds(diagnosis)]),
                     ReportSection("meant", "Definitions", [Items([*DEFINITIONS, *notes])])]
    counts = [f"{format_count(diagnosis.queries, 'query', 'queries')} of {diagnosis.part}",
              f"{format_count(diagnosis.draws, 'draw')} each"] if diagnosis.lines else []
    about = " · ".join([diagnosis.model, f"on {diagnosis.corpus}", f"{diagnosis.candidates:,} candidates", *counts,
                        format_count(diagnosis.threads, "thread"), diagnosis.run])
    title = "Negative samplers compared with the softmax" if diagnosis.lines else "The output table"
    return ReportDocument(title, about, _verdict(diagnosis), sections,
                    "Written by embtrain from the vectors and held-out data of this run. Times were measured on this "
                    "machine.")


def _verdict(diagnosis: Diagnosis) -> list[str]:
    out = []
    for m in diagnosis.sizes:
        lines = [line for line in diagnosis.lines if line.m == m and line.bias is not None]
        if not lines:
            continue
        best, cheapest = min(lines, key=lambda x: x.bias or 0.0), min(lines, key=lambda x: x.ms)
        unbiased = [line for line in lines if (line.bias or 0.0) <= (line.floor or 0.0)]
        if len(unbiased) > 1:
            names, least = ", ".join(line.strategy for line in unbiased), min(unbiased, key=lambda x: x.ms)
            text = (f"At m = {m:,} no bias above chance is observed with {names}; of these {least.strategy} is the "
                    f"cheapest, {format_value(least.ms)} ms a query")
        else:
            text = (f"At m = {m:,} the gradient is least biased with {best.strategy}: {format_value(best.bias)} of its "
                    f"length, at {format_value(best.ms)} ms a query")
        if cheapest not in (best, *unbiased):
            text += (f"; {cheapest.strategy} is the cheapest of those whose bias is known, "
                     f"{format_value(cheapest.bias)} at "
                     f"{format_value(cheapest.ms)} ms")
        out.append(text + ".")
    return out


def _figures(diagnosis: Diagnosis) -> list[Block]:
    out: list[Block] = []
    for i, m in enumerate(diagnosis.sizes):
        marks = [Mark(line.strategy, diagnosis.strategies.index(line.strategy), [line.bias], line.bias,
                      costs=[line.ms], cost=line.ms)
                 for line in diagnosis.lines if line.m == m and line.bias is not None]
        if not marks:
            continue
        best = pareto_front([(mark.cost, mark.mean) for mark in marks], False)
        about = f"bias of the gradient against milliseconds a query at m = {m:,}. " + "; ".join(
            f"{mark.label}: {format_value(mark.cost)} ms, {format_value(mark.mean)}" for mark in marks)
        names = ", ".join(marks[j].label for j in best)
        out.append(Figure(f"Bias against milliseconds, m = {m:,}", f"On the Pareto front: {names}.",
                          [panels.cost(f"bias{i}", about, marks, best, "milliseconds a query")], None,
                          [(mark.label, mark.place) for mark in marks], small=True))
    if not out:
        return [Paragraph("None of these sources states probabilities for the correction.", "missing")]
    return [Paragraph("Bias relative to the gradient's length; ringed: no other source is both closer and cheaper.",
                  "drawn"), *out, Paragraph("The next table contains the numbers.", "note")]


def _growth_section(diagnosis: Diagnosis) -> list[ReportSection]:
    """Bias and time against the number of candidates; empty if no subset could be measured."""
    counts = sorted({size.n for size in diagnosis.growth})
    if len(counts) < 2:
        return []
    figures: list[Block] = []
    for title, key in (("Bias", "bias"), ("Milliseconds a query", "ms")):
        bands = []
        for place, name in enumerate(diagnosis.strategies):
            values = [(size.n, value) for size in diagnosis.growth
                      if size.strategy == name and (value := getattr(size, key)) is not None]
            if values:
                x, y = (np.array(column, float) for column in zip(*values, strict=True))
                bands.append(SeedBand(name, place, x, y, y, y, 1, True))
        if bands:
            about = f"{title} against candidates. " + "; ".join(
                f"{band.label}: " + ", ".join(f"{format_value(y)} of {x:,.0f}" for x,
                                              y in zip(band.x, band.mean, strict=True))
                for band in bands)
            drawing = panels.banded(f"n-{key}", about, bands, panels.CANDIDATES)
            figures.append(Figure(f"{title} against n", "", [drawing], None,
                                  [(band.label, band.place) for band in bands], small=True))
    rows: list[TableRow] = [[size.strategy, f"{size.n:,}", format_value(size.bias), format_value(size.floor),
                             format_value(size.ms)]
                            for size in diagnosis.growth]
    head = [("strategy", ""), *((name, "number") for name in ("n", "bias", "chance", "ms a query"))]
    words = Paragraph(f"At m = {diagnosis.growth[0].m:,}; a trained source appears only with all candidates.",
                  "note")
    return [ReportSection("growth", "With fewer candidates", [*figures, ReportTable(head, rows), words])]


def _bounds(diagnosis: Diagnosis) -> list[Block]:
    rows: list[TableRow] = [[line.strategy, f"{line.m:,}", *(format_value(getattr(line, key)) for _, key in BOUNDS)]
                            for line in diagnosis.lines if line.lower is not None]
    head = [("theorem 1's bounds", ""), ("m", "number"), *((name, "number") for name, _ in BOUNDS)]
    return [ReportTable(head, rows)] if rows else []


def lines_of(diagnosis: Diagnosis, every_size: bool) -> list[Measurement]:
    """All lines; or the first of each strategy, for quantities that do not depend on m."""
    return [line for line in diagnosis.lines if every_size or line.m == diagnosis.sizes[0]]


def _plain(diagnosis: Diagnosis, columns: Sequence[tuple[str, str]]) -> ReportTable:
    return ReportTable(_head(columns), [[line.strategy, *(format_value(getattr(line, key)) for _, key in columns)]
                                        for line in lines_of(diagnosis, False)])


def _head(columns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [("strategy", ""), *((name, "number") for name, _ in columns)]


def format_value(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}".replace("-", "−")

"""How near sources of negatives come to the exact softmax, what they cost, and how a model's table lies: for a
terminal, Markdown, JSON, a page.

One document of plain words, numbers and drawings is made here; hypertext.py and exports.py write it down.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from embtrain.evaluate.hubness import Hubness
from embtrain.files import write_text
from embtrain.report import exports, hypertext, panels
from embtrain.report.bands import front
from embtrain.report.document import Block, Document, Figure, Items, Row, Section, Table, Words
from embtrain.report.panels import Mark

NEAR = (("KL", "kl"), ("TV", "tv"), ("ESS", "ess"), ("negative masses", "negative"))
GRADIENT = (("bias", "bias"), ("chance", "floor"), ("rmse", "rmse"), ("ms a question", "ms"))
THEOREMS = (("Σ p²/q̄", "chi"), ("gap", "gap"), ("Σ p |1−p_t−p/q̄|", "away"), ("ratio, least", "low"),
            ("ratio, greatest", "high"), ("factor left out", "factor"))
MEANT = (
    "p is the softmax of the scores without the right answer, q̄ the source's distribution without it. Closeness: means "
    "over the questions; theorems: medians.",
    "KL: Σ p log p/q̄ in nats. TV: ½ Σ |p − q̄|. ESS: 1 / Σ p²/q̄, the share of the draws that are worth something.",
    "bias: ‖E ∇' − ∇‖ of sampled softmax in parts of ‖∇‖, what chance adds taken off; chance: what so many draws would "
    "show where there is no bias; rmse: √E‖∇' − ∇‖², in the same parts. Root mean squares over the questions.",
    "Theorem 1 of Rawat et al. 2019 bounds the bias by its three quantities, here divided by powers of Z. Theorem 2: "
    "e^o / (q̄ Z) over what it nears as random Fourier features grow in number, 1 if it is reached; for unit vectors "
    "alone. The factor is what the paper's print leaves out.",
    "negative masses: the share of the tree's lowest nodes that random features make negative; they are drawn by their "
    "floor. ms a question: the time of a draw of m columns for all questions, by their number.",
)


@dataclass(frozen=True)
class Line:
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
    negative: float | None = None
    note: str = ""


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
    lines: Sequence[Line]
    table: Hubness | None = None

    @property
    def strategies(self) -> list[str]:
        return list(dict.fromkeys(line.strategy for line in self.lines))

    @property
    def sizes(self) -> list[int]:
        return list(dict.fromkeys(line.m for line in self.lines))


def write(folder: Path, found: Diagnosis) -> list[Path]:
    """diagnosis.json, .md and .html, each whole. Returns their paths."""
    told = document(found)
    files = {"diagnosis.json": as_json(found) + "\n", "diagnosis.md": exports.markdown(told),
             "diagnosis.html": hypertext.render(told)}
    for name, text in files.items():
        write_text(folder / name, text)
    return [folder / name for name in files]


def as_json(found: Diagnosis) -> str:
    return json.dumps(asdict(found), indent=1, ensure_ascii=False, allow_nan=False)


def table(found: Diagnosis) -> str:
    """The same for a terminal, in 80 columns."""
    out = [] if found.table is None else [*_lying(found.table), ""]
    for title, columns in (("gradient", GRADIENT), ("closeness", NEAR), ("theorems 1 and 2", THEOREMS)):
        lines = _lines(found, title == "gradient")
        if not any(getattr(line, key) is not None for line in lines for _, key in columns):
            continue
        head = [name.replace("ms a question", "ms").replace("negative masses", "negative") for name, _ in columns]
        names = [line.strategy if title != "gradient" else f"{line.strategy} m={line.m:,}" for line in lines]
        first = max(len(title), 24 if columns is THEOREMS else 30)
        wide = max(9, (80 - first) // len(columns) - 1) if columns is not THEOREMS else 8
        short = {"Σ p |1−p_t−p/q̄|": "away", "ratio, least": "least", "ratio, greatest": "greatest",
                 "factor left out": "factor"}
        out.append(f"{title:<{first}}" + "".join(f" {short.get(name, name):>{wide}}" for name in head))
        for name, line in zip(names, lines, strict=True):
            name = name if len(name) <= first else f"{name[:first - 9]}…{name[-8:]}"
            out.append(f"{name:<{first}}" + "".join(f" {_said(getattr(line, key)):>{wide}}" for _, key in columns))
        out.append("")
    out += [f"{line.strategy}: {line.note}" for line in _lines(found, False) if line.note]
    return "\n".join(out).rstrip("\n")


def _lying(table: Hubness) -> list[str]:
    def line(text: str, value: float) -> str:
        return f"{text:<60}{_said(value):>9}"
    out = [f"table of {table.rows:,} rows", line("  mean cosine of two rows", table.mean_cosine),
           "  nearest to the mean answer (times)"]
    out += [line(f"    {textwrap.shorten(hub.name, 40, placeholder='…')} ({hub.count:,.0f})", hub.cosine)
            for hub in table.hubs]
    out.append("  mean cosine to the nearest other row")
    return out + [line(f"    {band.name}, {band.rows:,} rows", band.crowding) for band in table.bands]


def _hubs(table: Hubness) -> Section:
    hubs = Table([("nearest to the mean answer", ""), ("times", "number"), ("cosine", "number")],
                 [[hub.name, f"{hub.count:,.0f}", _said(hub.cosine)] for hub in table.hubs])
    bands = Table([("right answers", ""), ("rows", "number"), ("cosine to the nearest other", "number")],
                  [[band.name, f"{band.rows:,}", _said(band.crowding)] for band in table.bands])
    words = f"Two of its {table.rows:,} rows have a cosine of {_said(table.mean_cosine)} in the mean."
    return Section("table", "How the table lies", [Words(words), hubs, bands])


def document(found: Diagnosis) -> Document:
    gradient: list[Row] = []
    for m in found.sizes:
        gradient.append(f"m = {m:,}")
        gradient += [[line.strategy, *(_said(getattr(line, key)) for _, key in GRADIENT)]
                     for line in found.lines if line.m == m]
    notes = [f"{line.strategy}: {line.note}." for line in _lines(found, False) if line.note]
    sections = [] if found.table is None else [_hubs(found.table)]
    if found.lines:
        sections += [Section("cost", "Bias against time", _figures(found)),
                     Section("gradient", "The gradient of sampled softmax", [Table(_head(GRADIENT), gradient)]),
                     Section("closeness", "Closeness to the softmax", [_plain(found, NEAR)]),
                     Section("theorems", "Theorems 1 and 2", [_plain(found, THEOREMS)]),
                     Section("meant", "What is meant", [Items([*MEANT, *notes])])]
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
                    f"cheapest, {_said(least.ms)} ms a question")
        else:
            text = (f"At m = {m:,} the gradient is least biased with {best.strategy}: {_said(best.bias)} of its "
                    f"length, at {_said(best.ms)} ms a question")
        if cheap not in (best, *unseen):
            text += f"; {cheap.strategy} is the cheapest, {_said(cheap.bias)} at {_said(cheap.ms)} ms"
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
            f"{mark.label}: {_said(mark.cost)} ms, {_said(mark.mean)}" for mark in marks)
        names = ", ".join(marks[j].label for j in best)
        out.append(Figure(f"Bias against milliseconds, m = {m:,}", f"On the Pareto front: {names}.",
                          [panels.cost(f"bias{i}", about, marks, best, "milliseconds a question")], None,
                          [(mark.label, mark.place) for mark in marks], small=True))
    if not out:
        return [Words("None of these sources states by what its columns are corrected.", "missing")]
    return [Words("Bias in parts of the gradient's length; ringed: no other source is both nearer and cheaper.",
                  "drawn"), *out, Words("The numbers are those of the next table.", "note")]


def _lines(found: Diagnosis, each: bool) -> list[Line]:
    """All lines; or the first of each strategy, for what does not depend on m."""
    return [line for line in found.lines if each or line.m == found.sizes[0]]


def _plain(found: Diagnosis, columns: Sequence[tuple[str, str]]) -> Table:
    return Table(_head(columns), [[line.strategy, *(_said(getattr(line, key)) for _, key in columns)]
                                  for line in _lines(found, False)])


def _head(columns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [("strategy", ""), *((name, "number") for name, _ in columns)]


def _said(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}".replace("-", "−")

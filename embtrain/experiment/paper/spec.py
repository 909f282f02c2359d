"""A paper's claim as a file of configs/paper: the runs, the reported numbers, and the rules that decide the claim.

Errors name file, line and key. docs/reference/formats.md documents the keys.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from embtrain.common import shipped
from embtrain.common.config import Layer, Section, build, read_yaml
from embtrain.common.config.shown import KeyPath, dotted
from embtrain.common.errors import UsageError
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.evaluate.config import Benchmarks
from embtrain.experiment.comparison.grid import Kind, Metric, RunName, StartRun

FILE = "paper.yaml"  # the claim, in the folder of a reproduction
HELD_OUT = ("valid", "test", "training")  # benchmarks of metrics that every run has
NEEDS = {"not_worse": ("against", "margin"), "better": ("against",), "near": ("value", "within")}


class PaperRun(Kind):
    x: float | None = Field(None, description="position of these runs on the axis; null: a line across the figure")


class Axis(Section):
    """A figure of measures against the varied quantity."""

    name: str = Field(min_length=1, description="label of the axis")
    metrics: list[str] = Field(min_length=1, description="metrics plotted against it: BENCHMARK/METRIC")


class Check(Section):
    """One condition of the claim, evaluated by claims.py; all of them must hold."""

    rule: Literal["not_worse", "better", "near"] = Field(description="rule that compares the runs")
    run: str = Field(description="runs to which the rule applies")
    metric: Metric = Field(description="BENCHMARK/METRIC")
    against: str | None = Field(None, description="better, not_worse: runs of the comparison")
    margin: float | None = Field(None, gt=0, description="not_worse: largest difference that still counts as equal")
    value: float | None = Field(None, description="near: expected value")
    within: float | None = Field(None, gt=0, description="near: largest distance from the expected value")

    @model_validator(mode="after")
    def _keys_of_the_rule(self) -> Check:
        for key in ("against", "margin", "value", "within"):
            if (getattr(self, key) is None) == (key in NEEDS[self.rule]):
                wrong = "is missing" if key in NEEDS[self.rule] else "is not allowed"
                raise ValueError(f"rule {self.rule} takes {', '.join(NEEDS[self.rule])} in addition to run and metric; "
                                 f"{key} {wrong}")
        return self


class Expected(Section):
    """A reported number."""

    what: str = Field(min_length=1, description="measured quantity")
    value: float = Field(description="reported number, in the unit of this package")
    where: str = Field(min_length=1, description="table, figure or equation")
    protocol: str = Field(min_length=1, description="protocol of the measurement, in words")
    source: Literal["published", "repository", "recalled"] = Field(
        description="read in the publication, in a public repository, or quoted from memory")
    reading: Literal["value", "exp", "gain", "least"] = Field(
        "value", description="our number: the mean, e^mean, run/against - 1, or the least x that is not worse")
    run: str | None = Field(None, description="name of the run whose measurement is shown next to it")
    metric: Metric | None = Field(None, description="BENCHMARK/METRIC")
    against: str | None = Field(None, description="gain: runs that the gain is relative to")

    @model_validator(mode="after")
    def _keys_of_the_reading(self) -> Expected:
        needs = {"least": (), "gain": ("run", "metric", "against")}.get(self.reading, ("run", "metric"))
        for key in ("run", "metric", "against"):
            if (getattr(self, key) is None) == (key in needs):
                raise ValueError(f"reading {self.reading} takes {', '.join(needs) or 'no run and no metric'}; {key} "
                                 f"{'is missing' if key in needs else 'is not allowed'}")
        return self


class Protocol(Section):
    """A difference between our protocol and the paper's."""

    what: str = Field(min_length=1)
    theirs: str = Field(min_length=1)
    ours: str = Field(min_length=1)


class Paper(Section):
    """A file of configs/paper."""

    title: str = Field(min_length=1, description="title of the page")
    citation: str = Field(min_length=1, description="authors and publication of the claim")
    claim: str = Field(min_length=1, description="the claim in words")
    corpus: str = Field("gensim-wiki", description="a recipe of corpora/, or the path of a text")
    seeds: int = Field(3, ge=1, le=1000, description="number of seeds: 1, 2, ...")
    cpu_seconds: float = Field(gt=0, description="CPU seconds for all runs on this corpus; no run begins after them")
    baseline: str = Field(description="runs with which the report compares all others")
    metric: Metric = Field("test/log_likelihood", description="metric of the verdict: BENCHMARK/METRIC")
    benchmarks: Benchmarks = Field([], description="names of evals/; one that is not on the machine is left out")
    during_training: Benchmarks = Field(
        [], description="those benchmarks that are also scored at each evaluation during training")
    sets: list[str] = Field([], description="KEY.KEY=VALUE, for every run")
    start: StartRun | None = Field(None, description="run whose input vectors the others start from; null: none")
    runs: dict[RunName, PaperRun] = Field(min_length=2, description="the runs, each by a name")
    axis: Axis | None = Field(None, description="a figure against the varied quantity; null: none")
    checks: list[Check] = Field(min_length=1, description="conditions of the claim")
    expected: list[Expected] = Field([], description="reported numbers; empty if the paper has only a figure")
    protocol: list[Protocol] = Field(min_length=1, description="differences from the paper's protocol")

    def grid(self, name: str) -> dict[str, Any]:
        """As a grid that `embtrain compare` could run."""
        kinds = {label: run.model_dump(mode="json", exclude={"x"}) for label, run in self.runs.items()}
        during = [f"evaluate.during_training=[{', '.join(self.during_training)}]"] if self.during_training else []
        start = None if self.start is None else self.start.model_dump(mode="json")
        return {"runs": kinds, "corpus": self.corpus, "start": start, "seeds": self.seeds, "baseline": self.baseline,
                "paper": name, "metric": self.metric, "benchmarks": self.benchmarks, "sets": [*self.sets, *during]}

    def is_own(self, corpus: str | None) -> bool:
        """Whether a grid reads the paper's own corpus; a stored grid has its absolute path."""
        return corpus in (self.corpus, os.path.abspath(self.corpus))

    def without_benchmarks(self, absent: set[str]) -> Paper:
        """The paper without some benchmarks."""
        return self.model_copy(update={
            "benchmarks": [name for name in self.benchmarks if name not in absent],
            "during_training": [name for name in self.during_training if name not in absent]})


def names() -> list[str]:
    return shipped.names("configs", "paper")


def path(name: str) -> Path:
    """The file of a name, or the user's file if the name is the path of a YAML file."""
    return Path(name) if name.endswith((".yaml", ".yml")) else shipped.path("configs", name, "paper")


def read(file: Path) -> Paper:
    """Read a paper. UsageError with file:line:column for each error, including names that do not exist."""
    layer = read_yaml(file)
    paper = build(Paper, [layer])
    if errors := [f"{_place(layer, keys)}: {dotted(keys)}: {error}" for keys, error in _dangling_names(paper)]:
        raise UsageError(*errors)
    return paper


def required_metrics(file: Path, benchmarks: Container[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Each metric that the file requires: its place, as errors name it, the metric, and the runs that must have it.

    benchmarks: those that are scored, because unavailable ones are dropped.
    """
    layer = read_yaml(file)
    for keys, metric, runs in _metrics(build(Paper, [layer])):
        part, _, name = metric.partition("/")
        is_target = part == "training" and " to " in name      # a target that a run may miss
        if not is_target and (part in HELD_OUT or part in benchmarks):
            yield f"{_place(layer, keys)}: {dotted(keys)}", metric, runs


def _metrics(paper: Paper) -> Iterator[tuple[KeyPath, str, list[str]]]:
    """Each required metric, and the runs that must have it."""
    yield ("metric",), paper.metric, [*paper.runs]
    rows: list[tuple[str, int, Check | Expected]] = [*(("checks", i, row) for i, row in enumerate(paper.checks)),
                                                     *(("expected", i, row) for i, row in enumerate(paper.expected))]
    for key, i, row in rows:
        if row.metric is not None:
            yield (key, i, "metric"), row.metric, [run for run in (row.run, row.against) if run is not None]
    x_runs = [label for label, run in paper.runs.items() if run.x is not None]
    for i, metric in enumerate(paper.axis.metrics if paper.axis else []):
        yield ("axis", "metrics", i), metric, x_runs


def _place(layer: Layer, keys: KeyPath) -> str:
    mark = next((layer.marks[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in layer.marks), None)
    return layer.name if mark is None else "{}:{}:{}".format(layer.name, *mark)


def _dangling_names(paper: Paper) -> Iterator[tuple[KeyPath, str]]:
    """Names of runs and benchmarks that are not defined in the file."""
    runs, known = ", ".join(paper.runs), (*HELD_OUT, *paper.benchmarks)
    run_names: list[tuple[KeyPath, str | None]] = [(("baseline",), paper.baseline)]
    rows = [*((("checks", i), row) for i, row in enumerate(paper.checks)),
            *((("expected", i), row) for i, row in enumerate(paper.expected))]
    for prefix, row in rows:
        assert isinstance(row, Check | Expected)
        run_names += [((*prefix, "run"), row.run), ((*prefix, "against"), row.against)]
    for keys, run in run_names:
        if run is not None and run not in paper.runs:
            yield keys, f"{run!r} is not one of the runs: {runs}"
    for keys, metric, _ in _metrics(paper):
        if metric.partition("/")[0] not in known:
            yield keys, f"{metric!r} belongs to none of {', '.join(known)}"
    for i, name in enumerate(paper.benchmarks):
        try:
            load_recipe("evals", name)
        except UsageError as error:
            yield ("benchmarks", i), f"{error}"
    for i, name in enumerate(paper.during_training):
        if name not in paper.benchmarks:
            yield ("during_training", i), f"{name!r} is not one of the benchmarks: {', '.join(paper.benchmarks)}"
    if paper.axis is not None and all(run.x is None for run in paper.runs.values()):
        yield ("axis",), "no run has an x"
    for i, number in enumerate(paper.expected):
        if number.reading == "least" and (paper.axis is None or all(c.rule != "not_worse" for c in paper.checks)):
            yield ("expected", i, "reading"), "least requires an axis and a check with rule: not_worse"

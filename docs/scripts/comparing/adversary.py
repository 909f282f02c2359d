"""The chart and table of the page on ACE: quality and CPU time of ACE next to noise that is not trained."""

from __future__ import annotations

import re
from typing import NamedTuple

from charts.scatter import Panel, Point, scatter
from raw import CPU, RESULTS, Comparison, comparison, figure, table

from embtrain.evaluate.statistics.significance import compare_to_baseline, t_interval
from embtrain.report.comparison.decimals import metric_label


class Task(NamedTuple):
    """A recorded comparison in which ACE took part."""

    folder: str                # in docs/results/comparisons
    heading: str
    ace: str                   # the run of ACE
    noise: str                 # the run of fixed noise with the same loss, or with the loss that ACE replaces
    others: tuple[str, ...]    # further runs, for the chart


TASKS = (
    Task("words/english-18m", "words, 18 million", "ace", "sgns", ("nce", "adv-only", "uniform")),
    Task("equal-time/words-equal-final", "words, 18 million, 40 s", "ace-r0.025", "sgns-r0.025", ("nce-r0.025",)),
    Task("words/excerpt", "words, gensim's excerpt", "ace", "sgns", ("nce", "uniform", "softmax")),
    Task("words/bose2018_skipgram", "words, excerpt, as published", "ace", "nce", ("adv-only",)),
    Task("words/bose2018_finetune", "given vectors, 9 million words", "ace", "nce", ("sgns",)),
    Task("graphs/bose2018_transd_wn18", "TransD, WN18", "ace", "uniform", ("uniform-twice",)),
    Task("graphs/bose2018_transe", "TransE, FB15k-237, margin", "ace", "uniform", ("uniform-twice", "adv-only")),
    Task("graphs/fb15k-237", "TransE, FB15k-237", "ace+self-adversarial", "self-adversarial",
         ("nscaching+self-adversarial", "kbgan+self-adversarial", "uniform+logistic")),
    Task("graphs/wn18rr", "TransE, WN18RR", "ace+self-adversarial", "self-adversarial",
         ("bernoulli+self-adversarial", "kbgan+self-adversarial", "uniform+logistic")),
    Task("hierarchies/bose2018_order", "order embeddings, nouns", "ace", "uniform", ("adv-only", "nscaching")),
    Task("hierarchies/order-margin", "order embeddings, nouns, margin", "ace+margin", "uniform+margin",
         ("nscaching+margin",)),
    Task("hierarchies/mammals", "order embeddings, mammals", "ace", "uniform", ("adv-only", "nscaching", "kbgan")),
    Task("hierarchies/mammals-equal", "order embeddings, mammals, 8 s", "ace", "uniform",
         ("nscaching", "kbgan", "hardest")),
    Task("translation/tables-of-answers", "a translator's table of answers", "ace", "nce", ("sgns",)),
)
NAMES = {"ace-r0.025": "ace", "sgns-r0.025": "sgns", "nce-r0.025": "nce",
         "ace+self-adversarial": "ace", "nscaching+self-adversarial": "nscaching", "kbgan+self-adversarial": "kbgan",
         "bernoulli+self-adversarial": "bernoulli", "uniform+logistic": "uniform", "ace+margin": "ace",
         "uniform+margin": "uniform", "nscaching+margin": "nscaching", "uniform-twice": "uniform, 2k"}

# In a report: "ace (-0.163) and adv-only (-0.369) are worse than sgns".
_NAME = r"[\w+-]+ \([^)]*\)"
_VERDICT = r"(beats?|(?:is|are) worse than|(?:is|are) not separable from)"
_WORDS = {"beat": "better", "beats": "better", "worse": "worse", "separable": "not separable"}
_OF_ACE = {"A beats B": "better", "B beats A": "worse"}


def adversary_chart() -> str:
    """Draw quality against CPU seconds, a panel for each task."""
    return scatter("Quality against CPU seconds of training: means over seeds with 95 % intervals", [
        _panel(task, comparison_of(task)) for task in TASKS])


def adversary_table() -> str:
    """Return the difference of ACE from fixed noise, paired by seed, its verdict with Holm's correction over all
    strategies of the comparison, the ratio of their CPU times, and the verdict at equal CPU time.
    """
    rows = []
    for task in TASKS:
        found = comparison_of(task)
        metric = found.grid["metric"]
        by = next(by for by in compare_to_baseline(found.values[metric], task.noise, metric) if by.a == task.ace)
        assert by.mean is not None and by.low is not None and by.high is not None
        verdict = _OF_ACE.get(by.verdict, by.verdict)
        ratio = _cpu_seconds(found, task.ace) / _cpu_seconds(found, task.noise)
        rows.append([task.heading, metric_label(metric), f"`{task.noise}`",
                     f"{figure(by.mean, by.sd, signed=True)} [{figure(by.low, by.sd, signed=True)}, "
                     f"{figure(by.high, by.sd, signed=True)}]", verdict, f"{ratio:.1f}", _at_equal_time(task, found),
                     str(by.n)])
    return table(["task", "metric", "fixed noise", "ACE less it", "verdict", "times the CPU time", "at equal CPU time",
                  "seeds"], rows)


def _at_equal_time(task: Task, found: Comparison) -> str:
    """Return what the comparison's report says of ACE and its baseline at equal CPU time, on validation."""
    if found.grid.get("cpu_seconds"):
        return "the runs had equal time"
    if found.grid["baseline"] != task.noise:
        return ""
    report = (found.folder / "report.md").read_text(encoding="utf-8")
    for names, verdict in re.findall(rf"((?:{_NAME}(?:, | and )?)+) {_VERDICT}",
                                     report.partition("CPU seconds for each, on ")[2].partition("\n")[0]):
        if by := re.search(rf"(?<![\w-]){re.escape(task.ace)} \(([^)]*)\)", names):
            return f"{_WORDS[verdict.split()[-2] if ' ' in verdict else verdict]} ({by[1].replace('-', '−')})"
    return ""


def comparison_of(task: Task) -> Comparison:
    """Return the recorded comparison of a task."""
    return comparison(RESULTS / "comparisons" / task.folder)


def _panel(task: Task, found: Comparison) -> Panel:
    metric = found.grid["metric"]
    points = []
    for label in (task.ace, task.noise, *task.others):
        mean = t_interval(found.values[metric][label])
        assert mean.mean is not None
        points.append(Point(NAMES.get(label, label), _cpu_seconds(found, label), mean.mean, mean.low, mean.high,
                          label == task.ace))
    return Panel(task.heading, metric_label(metric), points)


def _cpu_seconds(found: Comparison, label: str) -> float:
    mean = t_interval(found.values[CPU][label]).mean
    assert mean is not None
    return mean

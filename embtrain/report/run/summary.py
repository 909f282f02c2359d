"""Summary of a run in a few lines: model, data, duration and main scores."""

from __future__ import annotations

from typing import Any

from embtrain.common.terminal import format_count
from embtrain.common.types import Score
from embtrain.evaluate.heldout import DESCRIPTIONS
from embtrain.report.charts.curves import MAIN, metric
from embtrain.report.format import duration, interval, minus, number
from embtrain.report.load.run import RunRecord

PART = {"test": "the test part", "valid": "the validation part", "heldout": "held-out data"}
STOPPED_EARLY = "stopped early"  # in the note of the row training/seconds
MAIN_SCORES = 2  # benchmarks in the summary, in addition to the held-out measures


def get(tree: object, *keys: str) -> Any:
    """The value under nested keys, or None."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def named(run: RunRecord, section: str) -> str | None:
    """The name of a component: the key itself, or the name that its section states."""
    value = get(run.config, section)
    for key in ("strategy", "name", "source"):
        value = value.get(key, value) if isinstance(value, dict) else value
    return str(value) if isinstance(value, str | int) else None


def strategy(run: RunRecord) -> str | None:
    """The name of the strategy; that of the source if there is none."""
    return named(run, "strategy") or named(run, "negatives")


def verdict(run: RunRecord) -> list[str]:
    """The main scores as one sentence, then the model, the data and the duration."""
    model, source, corpus = named(run, "model"), strategy(run), named(run, "corpus")
    k, loss = get(run.config, "negatives", "k"), named(run, "loss")
    subject = model or "A model"
    if source:
        details = ", ".join([f"k\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{k}"] * (k is not None)
                            + [f"{loss} loss"] * (loss is not None))
        subject += f" trained with {source} negatives" + (f" ({details})" if details else "")
    else:
        subject += " trained"
    subject += f" on {corpus}" if corpus else ""
    return [_main_scores(run.scores), f"{subject}: {_length(run)}."]


def _length(run: RunRecord) -> str:
    if run.metrics is None:
        return "the duration is unknown, because metrics.jsonl is missing"
    reached, epochs = run.metrics.reached, get(run.config, "train", "epochs")
    if not reached:
        return "no step was logged"
    lengths = [_epochs(reached["epoch"], epochs)] if "epoch" in reached and isinstance(epochs, int) else []
    lengths += [STOPPED_EARLY] if _is_stopped_early(run.scores or []) else []
    lengths += [format_count(reached["step"], "step")]
    lengths += [format_count(reached["examples"], "example")] if "examples" in reached else []
    wall, cpu = reached.get("seconds"), reached.get("cpu_seconds")
    time = f" in {duration(wall)}" if wall is not None else ""
    return ", ".join(lengths) + time + (f" ({duration(cpu)} of CPU)" if cpu is not None else "")


def _is_stopped_early(scores: list[Score]) -> bool:
    return any((row.benchmark, row.metric) == ("training", "seconds") and STOPPED_EARLY in row.note for row in scores)


def _epochs(done: float, planned: int) -> str:
    """Lines count complete epochs: fewer than planned if the run was interrupted or stopped early."""
    return format_count(planned, "epoch") if done >= planned else f"{format_count(done, 'whole epoch')} of {planned:,}"


def _main_scores(scores: list[Score] | None) -> str:
    if not scores:
        return "It was not evaluated: scores.json is " + ("missing." if scores is None else "empty.")
    measures: dict[str, list[str]] = {}
    for r in _main(scores):
        measures.setdefault(r.benchmark, []).append(
            f"{metric(r.metric)} {minus(number(r.value))}" + (f" {minus(interval(r))}" if interval(r) else ""))
    results = [f"on {PART.get(benchmark, benchmark)}: {', '.join(texts)}" for benchmark, texts in measures.items()]
    return f"Result {'; '.join(results)}." if results else "No score has a value."


def _main(scores: list[Score]) -> list[Score]:
    """The first row of each benchmark, without parts of one already included, and the held-out measures."""
    taken: list[Score] = []
    # Parts whose measures are listed by name, the duration, which has its own sentence, and what is not a result.
    judged = {*DESCRIPTIONS, *(row.benchmark for row in scores if row.metric in MAIN)}
    for row in scores:
        part = any(row.benchmark.startswith(t.benchmark) for t in taken)
        if row.value is not None and row.benchmark not in judged and not part:
            taken.append(row)
    # Prefer the test part: validation may have selected the evaluated state.
    ordered = [*reversed(scores), *(row for row in scores if row.benchmark == "test")]
    heldout = {r.metric: r for r in ordered if r.metric in MAIN and r.value is not None}
    return taken[:MAIN_SCORES] + [heldout[m] for m in MAIN if m in heldout]

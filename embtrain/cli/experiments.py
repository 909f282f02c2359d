"""The commands that set things beside one another: compare, reproduce, report, diagnose, bench."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from embtrain.cli import options
from embtrain.cli.options import names
from embtrain.common.errors import UsageError
from embtrain.common.terminal import plain, show


def compare(
    negatives: Annotated[str | None, typer.Option(
        "--strategies", "--negatives", metavar="NAME,...",
        help="Strategies: names of configs/strategies, or your YAML files.")] = None,
    losses: Annotated[str | None, typer.Option(
        metavar="NAME,...", help="Losses put into each strategy; `own` is the strategy's, and the default.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME,...", help="Models: files of configs/models.")] = None,
    corpus: Annotated[str | None, typer.Option(
        metavar="NAME|PATH", autocompletion=options.corpora,
        help="A recipe of corpora/, or your own text.")] = None,
    seeds: Annotated[int | None, typer.Option(
        min=1, max=1000, help="How many seeds, from 1 on; 5 unless told.")] = None,
    baseline: Annotated[str | None, typer.Option(
        metavar="NAME", help="What the others are compared with; the first unless told.")] = None,
    metric: Annotated[str | None, typer.Option(
        metavar="BENCHMARK/METRIC", help="What decides; test/log_likelihood, or what the task has.")] = None,
    benchmarks: Annotated[str | None, typer.Option(
        metavar="NAME,...", help="Files of evals/ in place of evaluate.benchmarks.")] = None,
    cpu_seconds: Annotated[float | None, typer.Option(help="CPU seconds that each run may train.")] = None,
    sets: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="One key of every run; may be repeated.")] = None,
    search: Annotated[list[str] | None, typer.Option(
        metavar="KEY=LOW:HIGH[:log]|FILE", help="A key that is chosen for each strategy first, by trials on "
                                                "validation; KEY=[A, B] too; may be repeated. FILE: a YAML.")] = None,
    trials: Annotated[int | None, typer.Option(
        min=1, max=1000, help="Trials of --search, as many for each strategy, each as long as a run.")] = None,
    config: Annotated[Path | None, typer.Option(
        metavar="FILE", help="YAML of a grid, such as comparison.yaml of another; options win over it.")] = None,
    parallel: Annotated[int | None, typer.Option(min=1, help="Runs at a time; one to a core unless told.")] = None,
    threads: Annotated[int, typer.Option(min=0, help="Cores for all of it; 0: every core.")] = 0,
    out: Annotated[Path | None, typer.Option(
        metavar="DIR", help="Folder, not runs/<stamp>-compare; one that was stopped goes on.")] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train strategies over several seeds and say which is better, how surely and at what cost."""
    from embtrain.experiment.comparison import compare as comparing, failures, search_space

    options.hush(quiet)
    into = None if losses is None else [None if name == "own" else name for name in names(losses, "--losses") or []]
    asked = {"strategies": names(negatives, "--negatives"), "losses": into, "models": names(model, "--model"),
             "corpus": corpus, "seeds": seeds, "baseline": baseline, "metric": metric,
             "benchmarks": names(benchmarks, "--benchmarks"), "cpu_seconds": cpu_seconds, "sets": sets or None,
             "search": None if search is None else search_space.expand_files(search), "trials": trials}
    done = comparing.compare(comparing.read_grid(asked, config, out), out, parallel, threads)
    options.answer({"folder": str(done.folder), **done.results}, as_json,
                   lambda: f"{done.table()}\ncomparison: {plain(str(done.folder))}")
    if (wrong := failures.failed(done.folder, done.record)) is not None:
        raise wrong


def reproduce(
    name: Annotated[str | None, typer.Argument(
        metavar="NAME", autocompletion=options.papers,
        help="A file of configs/paper, or your YAML; without: what there is."
    )] = None,
    corpus: Annotated[str | None, typer.Option(
        metavar="NAME|PATH", autocompletion=options.corpora,
        help="Another corpus than the paper's file names.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, max=1000, help="How many seeds, from 1 on.")] = None,
    cpu_seconds: Annotated[float | None, typer.Option(
        min=0, help="CPU seconds for all runs together; no run begins after them.")] = None,
    sets: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="One key of every run; may be repeated.")] = None,
    parallel: Annotated[int | None, typer.Option(min=1, help="Runs at a time; one to a core unless told.")] = None,
    threads: Annotated[int, typer.Option(min=0, help="Cores for all of it; 0: every core.")] = 0,
    out: Annotated[Path | None, typer.Option(
        metavar="DIR", help="Folder, not runs/<stamp>-NAME; one that was stopped goes on.")] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run what a paper claims, and put its numbers beside ours; without NAME, list what there is."""
    from embtrain.experiment.comparison import failures
    from embtrain.experiment.paper import reproduce as reproducing

    options.hush(quiet)
    if name is None:
        if any(value is not None for value in (corpus, seeds, cpu_seconds, sets, parallel, out)):
            raise UsageError("NAME is missing: what is to be reproduced; without options, what there is is listed")
        papers = reproducing.listing()
        options.answer([paper._asdict() for paper in papers], as_json, lambda: "\n".join(map(str, papers)))
        return
    done = reproducing.reproduce(name, corpus, seeds, sets, out, parallel, threads, cpu_seconds)
    options.answer({"folder": str(done.folder), **done.results}, as_json,
                   lambda: f"{reproducing.format_text(done)}\n\n{done.table()}\n"
                           f"reproduction: {plain(str(done.folder))}")
    if (wrong := failures.failed(done.folder, done.record)) is not None:
        raise wrong


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs or of comparisons.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the report of several.")] = None,
    baseline: Annotated[str | None, typer.Option(
        metavar="NAME", help="Of several: what the others are compared with; the first unless told.")] = None,
    metric: Annotated[str | None, typer.Option(
        metavar="BENCHMARK/METRIC", help="Of several: what decides; test/log_likelihood, or what the task "
                                              "has.")] = None,
) -> None:
    """Write the report of a run or of a comparison anew, or compare several runs."""
    from embtrain.experiment.comparison import join

    show(plain(str(join.write(runs, out, baseline, metric))))


def diagnose(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run; one that is not finished is told.")],
    negatives: Annotated[str | None, typer.Option(
        "--strategies", "--negatives", metavar="NAME,...",
        help="Strategies: names of configs/strategies, or your YAML files.")] = None,
    m: Annotated[str, typer.Option("--m", metavar="N,...", help="Numbers of columns.")] = "10,100",
    queries: Annotated[int, typer.Option(min=1, max=100_000, help="Held-out questions.")] = 64,
    draws: Annotated[int, typer.Option(min=2, max=1_000_000, help="Draws that a bias is measured by.")] = 400,
    threads: Annotated[int | None, typer.Option(
        min=0, help="Threads; 0: every core. Unless given, the run's train.threads.")] = None,
    dump_negatives: Annotated[Path | None, typer.Option(
        metavar="FILE", help="Write the drawn columns and measure nothing; the first of --m is k.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder, not RUN/diagnosis.")] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """How a trained model's table lies; how near strategies' draws come to its softmax, and what a draw costs."""
    from dataclasses import asdict

    from embtrain.experiment.diagnosis import diagnose as diagnosing
    from embtrain.report.diagnosis import table as diagnosis_table

    options.hush(quiet)
    sizes, strategies = _counts(m, "--m", 100_000), list(dict.fromkeys(names(negatives, "--negatives") or []))
    if dump_negatives is not None:
        from embtrain.experiment.diagnosis import dump

        lines = dump.dump(run, strategies, dump_negatives, sizes[0], queries, threads)
        options.answer({"columns": lines, "file": str(dump_negatives)}, as_json,
                       lambda: f"{lines:,} columns: {plain(str(dump_negatives))}")
        return
    found = diagnosing.diagnose(run, strategies, sizes, queries, draws, threads, out)
    options.answer(asdict(found), as_json,
                   lambda: f"{diagnosis_table.table(found)}\ndiagnosis: {plain(str(out or run / 'diagnosis'))}")


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to time: a file of embtrain/bench.")],
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds; ours and rivals take turns in each.")] = 5,
    threads: Annotated[str, typer.Option(metavar="N,...", help="Numbers of threads.")] = "1,2",
    only: Annotated[str | None, typer.Option(metavar="CASE,...", help="Some cases, or their beginnings.")] = None,
    corpus: Annotated[str | None, typer.Option(metavar="NAME|PATH", help="Another text than the bench's own.")] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Time embtrain beside its rivals on the same work; the last line is JSON with every round."""
    import contextlib

    import torch  # noqa: F401  before any clock runs

    from embtrain import bench as benches
    from embtrain.bench.base import last_line

    options.hush(quiet)
    counts = _counts(threads, "--threads", 1024)
    # With --json the rounds, which are told while they last, are progress.
    with contextlib.redirect_stdout(None if quiet else sys.stderr) if as_json else contextlib.nullcontext():
        summary = benches.find(name)(rounds, counts, names(only, "--only"), corpus)
    options.answer(summary, as_json, lambda: last_line(summary))


def _counts(text: str, flag: str, most: int) -> list[int]:
    """The numbers between the commas; one that is said twice counts once."""
    counts = [int(part) if part.isdecimal() and len(part) < 10 else 0 for part in names(text, flag) or []]
    if not all(1 <= count <= most for count in counts):
        raise UsageError(f"{flag}: {text[:80]!r} should be numbers from 1 to {most} with commas between them")
    return list(dict.fromkeys(counts))

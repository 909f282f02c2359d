"""The commands that compare: compare, reproduce, report, diagnose, bench and submit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from embtrain.cli import options
from embtrain.cli.options import names
from embtrain.common import machine
from embtrain.common.errors import UsageError
from embtrain.common.terminal import format_count, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OUTPUT = ("out", "dry_run", "quiet", "as_json")  # parameters of `embtrain fit` that do not change what is trained


def compare(
    negatives: Annotated[str | None, typer.Option(
        "--strategies", "--negatives", metavar="NAME,...",
        help="Strategies: names that `embtrain list` prints, or your YAML files (default: those of --config).")] = None,
    losses: Annotated[str | None, typer.Option(
        metavar="NAME,...",
        help="Losses to combine with each strategy; own: the strategy's loss (default: own).")] = None,
    model: Annotated[str | None, typer.Option(
        metavar="NAME,...", help="Models: names that `embtrain list` prints (default: skipgram).")] = None,
    corpus: options.Corpus = None,
    epochs: options.Epochs = None,
    dim: options.Dim = None,
    seeds: Annotated[int | None, typer.Option(
        metavar="N", min=1, max=1000, help="Number of seeds, counted from 1 (default: 5).")] = None,
    baseline: Annotated[str | None, typer.Option(
        metavar="NAME", help="Strategy that the others are compared with (default: the one stored in --out, else the "
                             "first).")] = None,
    metric: Annotated[str | None, typer.Option(
        metavar="BENCHMARK/METRIC", help="Primary metric (default: the task's, usually test/log_likelihood).")] = None,
    benchmarks: Annotated[str | None, typer.Option(
        metavar="NAME,...",
        help="Benchmarks: names of `embtrain list`, or your own tables (default: evaluate.benchmarks).")] = None,
    cpu_seconds: Annotated[float | None, typer.Option(
        metavar="SECONDS", help="Limit of CPU seconds for each run (default: none).")] = None,
    overrides: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="Override one key of every run. Repeatable.")] = None,
    search: Annotated[list[str] | None, typer.Option(
        metavar="KEY=LOW:HIGH[:log]|FILE", help="Tune a key for each strategy by trials on the validation split before "
                                                "the comparison; also KEY=[A, B]. FILE: a YAML file of them. "
                                                "Repeatable.")] = None,
    trials: Annotated[int | None, typer.Option(
        metavar="N", min=1, max=1000,
        help="Number of trials of --search for each strategy; each takes as long as a run (default: none).")] = None,
    config: Annotated[Path | None, typer.Option(
        metavar="FILE", readable=False, callback=options.check_yaml,
        help="YAML file of a grid, e.g. comparison.yaml of another comparison; options override it, --set key "
             "by key (default: none).")] = None,
    parallel: Annotated[int | None, typer.Option(
        metavar="N", min=1, help="Number of runs at a time (default: one per core).")] = None,
    threads: Annotated[int, typer.Option(metavar="N", min=0, max=1024, help="Total number of cores; 0: all.")] = 0,
    out: Annotated[Path | None, typer.Option(
        metavar="DIR", readable=False,
        help="Folder (default: runs/<stamp>-compare); continues a comparison there, with its grid as default.")] = None,
    join: options.Join = False,
    retry_failed: options.RetryFailed = False,
    lease_seconds: options.LeaseSeconds = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train strategies over several seeds and compare them.

    The report contains which is better, with what certainty and at what cost.
    """
    with machine.paused_collector():
        from embtrain.experiment.comparison import compare as comparing, failures

    options.configure_output(quiet)
    loss_names = None if losses is None else [None if x == "own" else x for x in names(losses, "--losses") or []]
    sets = [*options.short_sets(epochs, dim), *(overrides or [])]
    grid = {"strategies": names(negatives, "--negatives"), "losses": loss_names, "models": names(model, "--model"),
            "corpus": corpus, "seeds": seeds, "baseline": baseline, "metric": metric,
            "benchmarks": names(benchmarks, "--benchmarks"), "cpu_seconds": cpu_seconds, "sets": sets or None,
            "search": search, "trials": trials}
    done = comparing.compare(comparing.read_grid(grid, config, out), out, parallel, threads,
                             **options.sharing(join, retry_failed, lease_seconds))
    options.emit({"folder": str(done.folder), **done.results}, as_json,
                 lambda: f"{done.table()}\ncomparison: {plain(str(done.folder))}")
    if (error := failures.failed(done.folder, done.record)) is not None:
        raise error


def reproduce(
    name: Annotated[str | None, typer.Argument(
        metavar="NAME", autocompletion=options.papers,
        help="Paper: a name, or your YAML file. Without it: list the available papers.")] = None,
    corpus: Annotated[str | None, typer.Option(
        metavar="NAME|PATH", autocompletion=options.corpora, callback=options.check_corpus,
        help="Corpus: a name that `embtrain data list` prints, or a path (default: the paper's).")] = None,
    seeds: Annotated[int | None, typer.Option(
        metavar="N", min=1, max=1000, help="Number of seeds, counted from 1 (default: the paper's).")] = None,
    cpu_seconds: Annotated[float | None, typer.Option(
        metavar="SECONDS",
        help="Limit of CPU seconds for all runs: none starts after it (default: the paper's, on its corpus).")] = None,
    overrides: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="Override one key of every run. Repeatable.")] = None,
    parallel: Annotated[int | None, typer.Option(
        metavar="N", min=1, help="Number of runs at a time (default: one per core).")] = None,
    threads: Annotated[int, typer.Option(metavar="N", min=0, max=1024, help="Total number of cores; 0: all.")] = 0,
    out: Annotated[Path | None, typer.Option(
        metavar="DIR", readable=False, help="Folder (default: runs/<stamp>-NAME); continues a reproduction there, with "
                                            "its corpus, seeds and settings as defaults.")] = None,
    join: options.Join = False,
    retry_failed: options.RetryFailed = False,
    lease_seconds: options.LeaseSeconds = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Reproduce a paper's experiment and compare the numbers. Without NAME, list the available papers."""
    from embtrain.experiment.comparison import failures
    from embtrain.experiment.paper import reproduce as reproducing

    options.configure_output(quiet)
    if name is None:
        if any((corpus, seeds, cpu_seconds is not None, overrides, parallel, threads, out, join, retry_failed,
                lease_seconds)):
            raise UsageError("NAME: is missing; give the paper to reproduce, or no option to list the available papers")
        papers = reproducing.listing()
        options.emit([paper._asdict() for paper in papers], as_json, lambda: "\n".join(map(str, papers)))
        return
    done = reproducing.reproduce(name, corpus, seeds, overrides, out, parallel, threads, cpu_seconds,
                                 **options.sharing(join, retry_failed, lease_seconds))
    options.emit({"folder": str(done.folder), **done.results}, as_json,
                 lambda: f"{reproducing.format_text(done)}\n\n{done.table()}\n"
                         f"reproduction: {plain(str(done.folder))}")
    if (error := failures.failed(done.folder, done.record)) is not None:
        raise error


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", readable=False, help="Run or comparison folders.",
                                                callback=options.check_runs)],
    out: Annotated[Path | None, typer.Option(
        metavar="DIR", readable=False,
        help="Folder for the report of several runs (default: runs/<stamp>-compare).")] = None,
    baseline: Annotated[str | None, typer.Option(
        metavar="NAME", help="For several folders: strategy that the others are compared with (default: the "
                             "first).")] = None,
    metric: Annotated[str | None, typer.Option(
        metavar="BENCHMARK/METRIC", help="For several folders: primary metric (default: the task's, usually "
                                         "test/log_likelihood).")] = None,
    figures: Annotated[str | None, typer.Option(
        metavar="KIND,...", help="Also write every figure into the folder figures: svg, pdf, png; the last two need "
                                 "CairoSVG (default: none).")] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Rewrite the report of a run, or compare several runs. Comparisons have reports too."""
    from embtrain.experiment.comparison import join
    from embtrain.report import figure_files

    options.configure_output(quiet)
    figure_files.check(kinds := names(figures, "--figures") or [])
    page = join.write(runs, out, baseline, metric, kinds)
    written = figure_files.write(page.parent, kinds) if kinds else []
    lines = [str(page)] + [f"{page.parent / figure_files.FOLDER}: {format_count(len(written), 'file')}"] * bool(kinds)
    options.emit({"report": str(page), "figures": list(map(str, written))}, as_json,
                 lambda: "\n".join(map(plain, lines)))


def diagnose(
    run: Annotated[Path, typer.Argument(metavar="RUN", readable=False, callback=options.check_run,
                                        help="Run folder (an unfinished run gives a warning).")],
    negatives: Annotated[str | None, typer.Option(
        "--strategies", "--negatives", metavar="NAME,...",
        help="Strategies: names that `embtrain list` prints, or your YAML files (default: the table alone).")] = None,
    m: Annotated[str, typer.Option("--m", metavar="N,...", help="Numbers of negatives.")] = "10,100",
    queries: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="Number of held-out queries.")] = 64,
    draws: Annotated[int | None, typer.Option(
        metavar="N", min=2, max=1_000_000, help="Number of draws to measure the bias with (default: 400).")] = None,
    threads: Annotated[int | None, typer.Option(
        metavar="N", min=0, max=1024, help="Number of threads; 0: all cores (default: that of the run).")] = None,
    dump_negatives: Annotated[Path | None, typer.Option(
        metavar="FILE", readable=False, help="Write the drawn negatives to FILE and measure nothing; k is the first "
                                             "value of --m (default: measure).")] = None,
    out: Annotated[Path | None, typer.Option(
        metavar="DIR", readable=False, help="Folder (default: RUN/diagnosis).")] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Diagnose a trained model and its samplers.

    Measures the geometry of its table, and distance to the softmax, bias and cost of each sampler.
    """
    from dataclasses import asdict

    from embtrain.experiment.diagnosis import diagnose as diagnosing
    from embtrain.report.diagnosis import table as diagnosis_table

    options.configure_output(quiet)
    sizes, strategies = _counts(m, "--m", 100_000), list(dict.fromkeys(names(negatives, "--negatives") or []))
    if dump_negatives is not None:
        from embtrain.experiment.diagnosis import dump

        if ignored := [flag for flag, value in (("--out", out), ("--draws", draws)) if value is not None]:
            raise UsageError(f"{ignored[0]}: has no effect with --dump-negatives, which measures nothing; remove it")
        n_negatives = dump.dump(run, strategies, dump_negatives, sizes[0], queries, threads)
        options.emit({"columns": n_negatives, "file": str(dump_negatives)}, as_json,
                     lambda: f"{n_negatives:,} negatives: {plain(str(dump_negatives))}")
        return
    diagnosis = diagnosing.diagnose(run, strategies, sizes, queries, draws or 400, threads, out)
    options.emit(asdict(diagnosis), as_json,
                 lambda: f"{diagnosis_table.table(diagnosis)}\ndiagnosis: {plain(str(out or run / 'diagnosis'))}")


def bench(
    name: Annotated[str, typer.Argument(
        metavar="NAME", help="Benchmark of speed, e.g. skipgram; --help lists them.")],
    rounds: Annotated[int, typer.Option(
        metavar="N", min=1, max=1000, help="Number of rounds; each runs embtrain and its rivals in turn.")] = 5,
    threads: Annotated[str | None, typer.Option(
        metavar="N,...", help="Numbers of threads; some benches run on one (default: 1,2).")] = None,
    only: Annotated[str | None, typer.Option(
        metavar="CASE,...", help="Cases to run, or their prefixes (default: all).")] = None,
    corpus: Annotated[str | None, typer.Option(
        metavar="NAME|PATH", help="Corpus to use; some benches make their data (default: the benchmark's).")] = None,
    device: Annotated[str, typer.Option(
        metavar="cpu|cuda", help="Device to measure; nn, skipgram and transe measure a GPU too.")] = "cpu",
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Time embtrain and its rivals on the same work. The last line is JSON with every round."""
    import contextlib

    import torch  # noqa: F401  before any clock runs

    from embtrain.cli import bench as benches
    from embtrain.cli.bench.harness.base import last_line

    options.configure_output(quiet)
    counts = None if threads is None else _counts(threads, "--threads", 1024)
    # The lines of the rounds are progress output: nothing with --quiet, and on standard error with --json.
    with contextlib.redirect_stdout(None if quiet else sys.stderr if as_json else sys.stdout):
        summary = benches.measure(name, rounds, names(only, "--only"), counts, corpus, device)
    options.emit(summary, as_json, lambda: last_line(summary))


def submit(
    context: typer.Context,
    run: options.RunFolder,
    out: Annotated[Path | None, typer.Option(
        metavar="FILE", readable=False, help="JSON lines file to append to (default: that of the task and corpus in "
                             "docs/results/leaderboard of the checkout).")] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Add the scores of a run to the leaderboard, as one JSON line.

    Refuses a run whose command cannot be repeated: it must be `embtrain fit`, or that of a comparison, without files of
    yours, from code that is committed, and must give the settings of the run today.
    """
    from embtrain.common.output_paths import check_output_file
    from embtrain.experiment.inspect import submission

    options.configure_output(quiet)
    file = None if out is None else check_output_file(out, inputs=[run])
    fit: Any = context.find_root().command

    def parse(words: Sequence[str]) -> tuple[Mapping[str, Any], list[str]]:
        return _parse(fit.commands["fit"], words)

    line = submission.describe(run, parse)
    file = file or submission.default_file(line)
    submission.append(file, line)
    value = line.scores[line.metric]
    options.emit({"command": line.command, "metric": line.metric, "value": value, "file": str(file)}, as_json,
                 lambda: f"{plain(line.command)}\n{line.metric}: {value:.4g}\nleaderboard: {plain(str(file))}")


def _parse(command: Any, words: Sequence[str]) -> tuple[Mapping[str, Any], list[str]]:
    """Parse the words of a command into its parameters, and into the same words without output options."""
    values = command.make_context(command.name, list(words)).params
    repeated: list[str] = []
    for parameter in command.params:
        value = values.get(parameter.name)
        if value is True and parameter.name not in OUTPUT:
            repeated.append(parameter.opts[0])
        elif value is not None and value is not False and parameter.name not in OUTPUT:
            for one in value if isinstance(value, list | tuple) else [value]:
                repeated += [parameter.opts[0], str(one)]
    return values, repeated


def _counts(text: str, flag: str, highest: int) -> list[int]:
    """Parse counts separated by commas, without repetitions."""
    counts = [int(part) if part.isdecimal() and len(part) < 10 else 0 for part in names(text, flag) or []]
    if not all(1 <= count <= highest for count in counts):
        raise UsageError(f"{flag}: {text[:80]!r} should be numbers from 1 to {highest}, separated by commas")
    return list(dict.fromkeys(counts))

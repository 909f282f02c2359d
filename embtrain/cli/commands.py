"""The commands and their options.

Only typer is imported up here, so that `--help` answers at once; a command imports what it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from embtrain.errors import UsageError

if TYPE_CHECKING:
    from embtrain.types import Row

# Plain help: rich would double the time to the first line and draw boxes into logs.
app = typer.Typer(name="embtrain", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
                  help="Train embeddings with interchangeable sources of negatives, judge them, report them.")
data = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Corpora and benchmarks on this machine.")
app.add_typer(data, name="data")


def _strategies() -> list[str]:
    from embtrain import shipped

    return shipped.names("configs", "negatives")


def _models() -> list[str]:
    from embtrain import shipped

    return shipped.names("configs", "models")


def _corpora() -> list[str]:
    from embtrain import shipped

    return shipped.names("corpora")


def _benchmarks() -> list[str]:
    from embtrain import shipped

    return shipped.names("evals")


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
What = Annotated[Path, typer.Argument(metavar="WHAT", help="Folder of a run, or a file of vectors (word2vec, GloVe).")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Scores as JSON on stdout instead of a table.")]


@app.callback(invoke_without_command=True)
def _all(context: typer.Context,
         version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version.")] = False) -> None:
    if version:
        import embtrain

        print(f"embtrain {embtrain.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(UsageError.code)


@app.command()
def fit(
    negatives: Annotated[str | None, typer.Option(
        metavar="NAME", autocompletion=_strategies, help="Strategy: one of configs/negatives, or your YAML.")] = None,
    model: Annotated[str | None, typer.Option(
        metavar="NAME", autocompletion=_models, help="Model: a file of configs/models.")] = None,
    corpus: Annotated[str | None, typer.Option(
        metavar="NAME|PATH", autocompletion=_corpora, help="A recipe of corpora/, or your own text.")] = None,
    loss: Annotated[str | None, typer.Option(
        metavar="NAME", help="Another loss than the strategy's.")] = None,
    config: Annotated[Path | None, typer.Option(
        metavar="FILE", help="Your own YAML, laid over the shipped ones.")] = None,
    sets: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="One key, over everything else; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of tables, order and draws.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads; 0: every core.")] = None,
    device: Annotated[str | None, typer.Option(metavar="DEVICE", help="cpu, cuda or cuda:N.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the run, not runs/<stamp>-...")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the configuration, memory and time; do nothing.")
                       ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train, evaluate and report."""
    from embtrain import experiment

    _hush(quiet)
    settings = experiment.resolve(negatives, model, corpus, loss, config, sets or [], seed, threads, device)
    if dry_run:
        print(experiment.plan(settings))
        return
    _tell(experiment.fit(settings, out), as_json)


@app.command()
def resume(run: RunFolder, quiet: Quiet = False, as_json: Json = False) -> None:
    """Go on with a run that was stopped, from its last whole checkpoint."""
    from embtrain import experiment

    _hush(quiet)
    _tell(experiment.resume(run), as_json)


@app.command()
def compare(
    negatives: Annotated[str | None, typer.Option(
        metavar="NAME,...", help="Strategies: names of configs/negatives, or your YAML files.")] = None,
    losses: Annotated[str | None, typer.Option(
        metavar="NAME,...", help="Losses put into each strategy; `own` is the strategy's, and the default.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME,...", help="Models: files of configs/models.")] = None,
    corpus: Annotated[str | None, typer.Option(
        metavar="NAME|PATH", autocompletion=_corpora, help="A recipe of corpora/, or your own text.")] = None,
    seeds: Annotated[int | None, typer.Option(
        min=1, max=1000, help="How many seeds, from 1 on; 5 unless told.")] = None,
    baseline: Annotated[str | None, typer.Option(
        metavar="NAME", help="What the others are compared with; the first unless told.")] = None,
    metric: Annotated[str | None, typer.Option(
        metavar="BENCHMARK/METRIC", help="What decides; test/log_likelihood unless told.")] = None,
    benchmarks: Annotated[str | None, typer.Option(
        metavar="NAME,...", help="Files of evals/ in place of evaluate.on.")] = None,
    cpu_seconds: Annotated[float | None, typer.Option(help="CPU seconds that each run may train.")] = None,
    sets: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="One key of every run; may be repeated.")] = None,
    config: Annotated[Path | None, typer.Option(
        metavar="FILE", help="YAML of a grid, such as comparison.yaml of another; options win over it.")] = None,
    parallel: Annotated[int | None, typer.Option(min=1, help="Runs at a time; one to a core unless told.")] = None,
    threads: Annotated[int, typer.Option(min=0, help="Cores for all of it; 0: every core.")] = 0,
    out: Annotated[Path | None, typer.Option(
        metavar="DIR", help="Folder, not runs/<stamp>-compare; one that was stopped goes on.")] = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="results.json on stdout instead of a table.")] = False,
) -> None:
    """Train strategies over several seeds and say which is better, how surely and at what cost."""
    import json

    from embtrain.experiment import compare as comparing

    _hush(quiet)
    into = None if losses is None else [None if name == "own" else name for name in _names(losses, "--losses") or []]
    options = {"strategies": _names(negatives, "--negatives"), "losses": into, "models": _names(model, "--model"),
               "corpus": corpus, "seeds": seeds, "baseline": baseline, "metric": metric,
               "benchmarks": _names(benchmarks, "--benchmarks"), "cpu_seconds": cpu_seconds, "sets": sets or None}
    done = comparing.compare(comparing.grid(options, config, out), out, parallel, threads)
    if as_json:
        print(json.dumps(done.results, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print(done.table())
        print(f"comparison: {done.folder}")


@app.command()
def evaluate(
    what: What,
    on: Annotated[list[str] | None, typer.Option(
        metavar="NAME", autocompletion=_benchmarks, help="Benchmark: a file of evals/; may be repeated.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Score a run or a file of vectors on benchmarks."""
    from embtrain import experiment
    from embtrain.report import table

    _hush(quiet)
    rows = experiment.evaluate(what, on)
    print(_json(rows) if as_json else table(rows))


@app.command()
def neighbours(what: What,
               words: Annotated[list[str], typer.Argument(metavar="WORD...")],
               count: Annotated[int, typer.Option(min=1, max=1000, help="Neighbours of each word.")] = 10) -> None:
    """The nearest words of each word."""
    from embtrain import experiment

    print(experiment.neighbours(what, words, count))


@app.command()
def export(what: RunFolder,
           out: Annotated[Path, typer.Option(metavar="FILE", help="File to write.")],
           format: Annotated[str, typer.Option(metavar="NAME", help="word2vec (text), word2vec-binary or safetensors.")
                             ] = "word2vec") -> None:
    """Write a run's vectors for other programs."""
    from embtrain import experiment

    experiment.export(what, format, out)
    print(out)


@app.command("list")
def list_all() -> None:
    """Strategies, models, losses, corpora and benchmarks."""
    from embtrain import experiment

    print(experiment.listing())


@app.command()
def doctor() -> None:
    """What this machine offers, and which parts of embtrain work on it."""
    from embtrain import doctor as check

    print(check.report())


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs or of comparisons.")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the report of several.")] = None,
    baseline: Annotated[str | None, typer.Option(
        metavar="NAME", help="Of several: what the others are compared with; the first unless told.")] = None,
    metric: Annotated[str | None, typer.Option(
        metavar="BENCHMARK/METRIC", help="Of several: what decides; test/log_likelihood unless told.")] = None,
) -> None:
    """Write the report of a run or of a comparison anew, or compare several runs."""
    from embtrain.experiment import join

    print(join.write(runs, out, baseline, metric))


@data.command("list")
def data_list() -> None:
    """Every corpus and benchmark, its size and licence, and whether it is here."""
    from embtrain.data import fetch

    rows = [("name", "kind", "bytes", "where", "licence")]
    rows += [(row.name, row.kind, "?" if row.size is None else f"{row.size:,}", row.where, row.licence)
             for row in fetch.list_data()]
    name, kind, size, where = (max(len(row[column]) for row in rows) for column in range(4))
    for row in rows:
        print(f"{row[0]:<{name}}  {row[1]:<{kind}}  {row[2]:>{size}}  {row[3]:<{where}}  {row[4]}")


@data.command("fetch")
def data_fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...")],
    trust: Annotated[bool, typer.Option("--trust", help="Take a file whose hash is not known beforehand.")] = False,
    quiet: Quiet = False,
) -> None:
    """Download corpora or benchmarks, and check them."""
    from embtrain.data import fetch

    _hush(quiet)
    for name in names:
        for path in fetch.fetch_named(name, trust):
            print(path)


@data.command("verify")
def data_verify(names: Annotated[list[str], typer.Argument(metavar="NAME...")]) -> None:
    """Check the hashes of what is here; nothing is downloaded."""
    from embtrain.data import fetch

    for name in names:
        for file in fetch.verify_named(name):
            print(f"{file.sha256}  {file.path}")


def _hush(quiet: bool) -> None:
    import logging

    from embtrain import progress

    progress.quiet = quiet
    logging.basicConfig(format="embtrain: %(message)s", level=logging.ERROR if quiet else logging.WARNING)


def _names(text: str | None, flag: str) -> list[str] | None:
    """The names between the commas."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(f"{flag}: {text!r} should be names with commas between them")
    return names


def _tell(run: Any, as_json: bool) -> None:
    if as_json:
        print(_json(run.scores))
    else:
        print(run.table())
        print(f"run: {run.folder}")


def _json(rows: list[Row]) -> str:
    import json

    return json.dumps([row._asdict() for row in rows], indent=1, ensure_ascii=False, allow_nan=False)

"""The commands and their options.

Only typer is imported up here, so that `--help` answers at once; a command imports what it runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from embtrain.cli import experiments, limits, options, prediction, vectors
from embtrain.common.errors import UsageError
from embtrain.common.terminal import data_line, note, plain, show

if TYPE_CHECKING:
    from embtrain.data.catalogue.fetch import DataRow
    from embtrain.experiment import Run

# Plain help: rich would double the time to the first line and draw boxes into logs.
app = typer.Typer(name="embtrain", invoke_without_command=True, rich_markup_mode=None, pretty_exceptions_enable=False,
                  help="Train embeddings with interchangeable sources of negatives, judge them, report them.")
data = typer.Typer(invoke_without_command=True, rich_markup_mode=None, help="Corpora and benchmarks on this machine.")
app.add_typer(data, name="data")


T = TypeVar("T")
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]


@app.callback()
def _all(context: typer.Context,
         version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version.")] = False) -> None:
    if version:
        import embtrain

        show(f"embtrain {embtrain.__version__}")
        raise typer.Exit
    _want_command(context)
    if "--help" not in sys.argv:
        limits.check()


@data.callback()
def _want_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(UsageError.code)


@app.command()
def fit(
    negatives: Annotated[str | None, typer.Option(
        "--strategy", "--negatives", metavar="NAME", autocompletion=options.strategies,
        help="Strategy: one of configs/strategies, or your YAML.")] = None,
    model: Annotated[str | None, typer.Option(
        metavar="NAME", autocompletion=options.models,
        help="Model: a file of configs/models.")] = None,
    corpus: Annotated[str | None, typer.Option(
        metavar="NAME|PATH", autocompletion=options.corpora,
        help="A recipe of corpora/, or your own text.")] = None,
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
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train, evaluate and report."""
    from embtrain import experiment

    options.hush(quiet)
    settings = experiment.resolve(negatives, model, corpus, loss, config, sets or [], seed, threads, device)
    if dry_run:
        plan = experiment.plan(settings)
        options.answer(plan.tree(), as_json, lambda: plan)
        return
    _tell(experiment.fit(settings, out), as_json)


@app.command()
def resume(run: RunFolder, quiet: options.Quiet = False, as_json: options.Json = False) -> None:
    """Go on with a run that was stopped, from its last whole checkpoint."""
    from embtrain import experiment

    options.hush(quiet)
    _tell(experiment.resume(run), as_json)


app.command()(experiments.compare)
app.command()(experiments.reproduce)
app.command()(experiments.report)
app.command()(experiments.diagnose)
app.command()(experiments.bench)


@app.command()
def evaluate(
    what: options.What,
    on: Annotated[list[str] | None, typer.Option(
        metavar="NAME,...", autocompletion=options.benchmarks,
        help="Benchmarks of evals/, or a file of your own: a recipe (.yaml), words with scores (CSV, TSV); for a run "
             "of a graph triples, of a hierarchy pairs, of labels documents, of a translator sentences. May be "
             "repeated.")] = None,
    sets: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="How a run is judged this time, keys of evaluate; or a key of the "
        "translator that --on nmt-... trains. May be repeated.")] = None,
    limit: options.Limit = None,
    encoding: options.Encoding = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Score a run or a file of vectors on benchmarks."""
    from embtrain import experiment
    from embtrain.report import table

    options.hush(quiet)
    names = [name for text in on or [] for name in
             ([text] if Path(text).exists() else options.names(text, "--on") or [])]
    rows = experiment.evaluate(what, names, sets or (), *options.reading(limit, encoding))
    options.answer([row._asdict() for row in rows], as_json, lambda: table(rows))


@app.command()
def translate(
    run: RunFolder,
    file: Annotated[Path | None, typer.Argument(
        metavar="FILE", help="Text, a sentence a line; may be packed. Without it: standard input.")] = None,
    batch: Annotated[int | None, typer.Option(
        min=1, max=10_000, help="Lines read before they are translated; 100, at a terminal 1.")] = None,
    beam: Annotated[int | None, typer.Option(
        min=1, max=100, help="Translations kept at each word; 1: greedy. The run's own unless told, as all below.")
        ] = None,
    unknown: Annotated[str | None, typer.Option(
        metavar="ban|keep|copy", help="<unk> as an answer; copy: the source word that was looked at most.")] = None,
    duplicates: Annotated[str | None, typer.Option(
        metavar="keep|remove", help="A word that stands twice in a row.")] = None,
    table: Annotated[str | None, typer.Option(
        metavar="float32|bfloat16", help="bfloat16: words are looked for in a rounded table.")] = None,
    quiet: options.Quiet = False,
) -> None:
    """Translate a file or standard input, line by line; an empty line stays empty."""
    if file is None and sys.stdin is None:
        raise UsageError("standard input is closed; give it lines to translate")
    from embtrain.experiment.run import translation as translating

    options.hush(quiet)
    told = {"beam": beam, "unknown": unknown, "duplicates": duplicates, "table": table}
    sets = {f"evaluate.{key}={value}": f"--{key} {value}" for key, value in told.items() if value is not None}
    made, task = translating.load(run, list(sets), {f"--set {text}": flag for text, flag in sets.items()})
    at_once = batch or (1 if file is None and sys.stdin.isatty() else 100)
    found = translating.translate_file(made, task, file, at_once) if file is not None else \
        translating.translate_lines(made, task, translating.bounded_lines(sys.stdin.buffer), at_once)
    for line in found:
        data_line(line, flush=at_once == 1)


app.command()(vectors.neighbours)
app.command()(prediction.predict)
app.command()(vectors.export)


@app.command("list")
def list_all(as_json: options.Json = False) -> None:
    """Strategies, models, losses, corpora and benchmarks, and what fits what."""
    from embtrain.experiment.catalogue import listing

    there = listing.listing()
    options.answer(there, as_json, lambda: listing.format_text(there))


@app.command()
def doctor(as_json: options.Json = False) -> None:
    """What this machine offers, and which parts of embtrain work on it."""
    from embtrain.cli import doctor as check

    found = check.found()
    options.answer(found, as_json, lambda: check.told(found))


@data.command("list")
def data_list(as_json: options.Json = False) -> None:
    """Every corpus and benchmark, its size and licence, and whether it is here."""
    from dataclasses import asdict

    from embtrain.data.catalogue import fetch

    found = fetch.list_data()
    options.answer([asdict(row) for row in found], as_json, lambda: _columns(found))


@data.command("fetch")
def data_fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...")],
    trust: Annotated[bool, typer.Option("--trust", help="Take a file whose hash is not known beforehand.")] = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Download corpora or benchmarks, and check them."""
    from embtrain.data.catalogue import fetch

    options.hush(quiet)
    got = ({"name": name, "path": str(path)} for name in names
           for path in _or_made(name, fetch.fetch_named(name, trust), "fetch"))
    options.answers(got, as_json, lambda file: plain(file["path"]))


@data.command("verify")
def data_verify(names: Annotated[list[str], typer.Argument(metavar="NAME...")], as_json: options.Json = False) -> None:
    """Check the hashes of what is here; nothing is downloaded."""
    from embtrain.data.catalogue import fetch

    found = ({"name": name, "path": str(file.path), "where": file.where, "sha256": file.sha256}
             for name in names for file in _or_made(name, fetch.verify_named(name), "check"))
    options.answers(found, as_json, lambda file: plain(f"{file['sha256']}  {file['path']}"))


@data.command("sentences")
def data_sentences(
    corpus: Annotated[str | None, typer.Argument(
        metavar="NAME|PATH", autocompletion=options.corpora, help="A recipe of corpora/, or your own text.")] = None,
    side: Annotated[str, typer.Option(metavar="source|target", help="Which language.")] = "target",
    part: Annotated[str, typer.Option(metavar="train|valid|test", help="Which sentences.")] = "train",
    ends: Annotated[bool, typer.Option("--ends", help="</s> behind each, for the row of a sentence's end.")] = False,
    sets: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="A key of translation; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write, not stdout.")] = None,
) -> None:
    """One side of a parallel corpus as a translator reads it, parted into words, a sentence a line."""
    from embtrain.common.files import check_output_file, write_text
    from embtrain.experiment.inspect.sentences import sentences

    where = None if out is None else check_output_file(out)
    found = sentences(corpus, side, part, ends, sets)
    if where is not None:
        write_text(where, "".join(f"{line}\n" for line in found))
        show(plain(str(out)))
        return
    for line in found:
        data_line(line)


def _or_made(name: str, files: list[T], what: str) -> list[T]:
    """What a recipe has; where it has nothing that lies anywhere, say so, or silence would look like a fault."""
    if not files:
        note(f"{name}: is made when it is read; there is nothing to {what}")
    return files


def _columns(found: list[DataRow]) -> str:
    rows = [("name", "kind", "bytes", "where", "licence")]
    rows += [(row.name, row.kind, "?" if row.size is None else f"{row.size:,}", plain(row.where), plain(row.licence))
             for row in found]
    name, kind, size, where = (max(len(row[column]) for row in rows) for column in range(4))
    return "\n".join(f"{row[0]:<{name}}  {row[1]:<{kind}}  {row[2]:>{size}}  {row[3]:<{where}}  {row[4]}"
                     for row in rows)


def _tell(run: Run, as_json: bool) -> None:
    tree = {"run": str(run.folder), "scores": [row._asdict() for row in run.scores]}
    options.answer(tree, as_json, lambda: f"{run.table()}\nrun: {plain(str(run.folder))}")

"""The commands and their options.

Only typer is imported at module level, so that `--help` is fast; each command imports what it runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from embtrain.cli import continuation, experiments, limits, options, own_files, prediction, vectors
from embtrain.common import machine
from embtrain.common.errors import UnknownNames, UsageError
from embtrain.common.terminal import data_line, note, plain, show, width

if TYPE_CHECKING:
    from embtrain.data.catalogue.fetch import DataRow

# Plain help: rich would double the time to the first line and draw boxes into logs.
app = typer.Typer(name="embtrain", invoke_without_command=True, rich_markup_mode=None, pretty_exceptions_enable=False,
                  help="Train embeddings with interchangeable negative samplers, evaluate them and report the results.")
data = typer.Typer(invoke_without_command=True, rich_markup_mode=None, help="Corpora and benchmarks on this machine.")
app.add_typer(data, name="data")
app.add_typer(own_files.config, name="config")

T = TypeVar("T")


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version.")] = False,
) -> None:
    if version:
        import embtrain

        show(f"embtrain {embtrain.__version__}")
        raise typer.Exit
    _require_command(context)
    if "--help" not in sys.argv:
        limits.check()


@data.callback()
def _require_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(UsageError.code)


own_files.config.callback()(_require_command)
app.command()(own_files.check)


@app.command()
def fit(
    negatives: options.Strategy = None,
    model: options.Model = None,
    corpus: options.Corpus = None,
    loss: options.Loss = None,
    config: Annotated[Path | None, typer.Option(
        metavar="FILE", readable=False, callback=options.check_yaml,
        help="Your own YAML file; it overrides the shipped ones (default: none).")] = None,
    overrides: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="Override one key, after everything else. Repeatable.")] = None,
    tuned: Annotated[bool, typer.Option(
        "--tuned", help="Tuned settings of this model and corpus; `embtrain list` names those that have some (default: "
                        "no).")] = False,
    epochs: options.Epochs = None,
    dim: options.Dim = None,
    seed: Annotated[int | None, typer.Option(
        metavar="N", help="Seed of initialization, order and draws (default: 1).")] = None,
    threads: options.Threads = None,
    device: Annotated[str | None, typer.Option(
        "--device", metavar="DEVICE", help="cpu, cuda or cuda:N (default: cpu).")] = None,
    out: options.Out = None,
    dry_run: options.DryRun = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train, evaluate and report."""
    with machine.paused_collector():
        from embtrain import experiment
        from embtrain.experiment import fit as train, resolve
        from embtrain.train.group import launch

    options.configure_output(quiet)
    short = options.short_sets(epochs, dim)
    flags = {"model.name": ("--model", model), "loss.name": ("--loss", loss), "train.seed": ("--seed", seed),
             "train.threads": ("--threads", threads), "train.device": ("--device", device),
             **{text.partition("=")[0]: (flag, text) for text, flag in short.items()}}
    with launch.join() as group, options.named_flags(flags):
        settings = resolve(negatives, model, corpus, loss, config, [*short, *(overrides or [])], seed, threads, device,
                           {f"--set {text}": flag for text, flag in short.items()}, tuned)
        if dry_run:
            if group.is_first:
                plan = experiment.plan(settings, group, out)
                options.emit(plan.tree(), as_json, lambda: plan)
            return
        run = train(settings, out) if group.size == 1 else experiment.fit_in_group(settings, out, group)
        if group.is_first:
            options.emit_run(run, as_json)


@app.command()
def resume(run: options.RunFolder, quiet: options.Quiet = False, as_json: options.Json = False) -> None:
    """Resume an interrupted run from its last complete checkpoint."""
    with machine.paused_collector():
        from embtrain import experiment
        from embtrain.experiment import resume as train_on
        from embtrain.train.group import launch

    options.configure_output(quiet)
    with launch.join() as group:
        resumed = train_on(run) if group.size == 1 else experiment.resume_in_group(run, group)
        if group.is_first:
            options.emit_run(resumed, as_json)


app.command("continue")(continuation.continue_run)
for _command in (experiments.compare, experiments.reproduce, experiments.report, experiments.diagnose,
                 experiments.submit):
    app.command()(_command)
app.command(cls=options.BenchCommand)(experiments.bench)


@app.command()
def evaluate(
    path: options.Vectors,
    on: Annotated[list[str] | None, typer.Option(
        metavar="NAME,...", autocompletion=options.benchmarks,
        help="Benchmarks: names that `embtrain list` prints, or your own file: a recipe (.yaml) or words with scores "
             "(CSV, TSV); triples for a graph model, pairs for a hierarchy, documents for a label model, sentences for "
             "a translator (default: those of the run). Repeatable.")] = None,
    overrides: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="Override an evaluation setting for this call, or a setting of the "
                                               "translator trained by --on nmt-... Repeatable.")] = None,
    limit: options.Limit = None,
    encoding: options.Encoding = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Evaluate a run or a vector file on benchmarks."""
    with machine.paused_collector():
        from embtrain.experiment import evaluate as score, interval_share
        from embtrain.report import table
        from embtrain.train.state.signals import resumable

    options.configure_output(quiet)
    names = [name for text in on or [] for name in
             ([text] if Path(text).exists() else options.names(text, "--on") or [])]
    failure: UnknownNames | None = None
    try:
        with resumable(lambda: ""):              # a translator that it trains is not kept
            rows = score(path, names, overrides or (), *options.read_options(limit, encoding))
    except UnknownNames as error:                # the scores of the other files are printed first
        if not error.rows:
            raise
        rows, failure = list(error.rows), error
    options.emit([row._asdict() for row in rows], as_json, lambda: table(rows, interval_share(path, overrides or ())))
    if failure is not None:
        raise failure


app.command()(prediction.translate)
app.command()(vectors.neighbours)
app.command()(prediction.predict)
app.command()(vectors.export)
app.command()(vectors.align)


@app.command("list")
def list_all(
    combinations: Annotated[bool, typer.Option(
        "--combinations", help="Also list which sources, losses and models can be combined.")] = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """List strategies by purpose, models, losses and data.

    Names of strategies, models, losses, corpora, benchmarks and papers, with one line for each component.
    """
    from embtrain.experiment.catalogue import listing

    options.configure_output(quiet)
    available = listing.listing(combinations)
    options.emit(available, as_json, lambda: listing.format_text(available, width()))


@app.command()
def doctor(quiet: options.Quiet = False, as_json: options.Json = False) -> None:
    """Check the installation. Prints versions, compiled core, memory, cache and engines."""
    from embtrain.cli import doctor as checks

    options.configure_output(quiet)
    report = checks.collect()
    options.emit(report, as_json, lambda: checks.format_text(report))


@data.command("list")
def data_list(quiet: options.Quiet = False, as_json: options.Json = False) -> None:
    """List corpora and benchmarks. Prints size and licence, and whether each is on this machine."""
    from dataclasses import asdict

    from embtrain.data.catalogue import fetch

    options.configure_output(quiet)
    rows = fetch.list_data()
    options.emit([asdict(row) for row in rows], as_json, lambda: _table(rows))


@data.command("fetch")
def data_fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...")],
    trust: Annotated[bool, typer.Option("--trust", help="Accept a file without a known hash.")] = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Download corpora or benchmarks and verify their hashes."""
    from embtrain.data.catalogue import fetch

    options.configure_output(quiet)
    fetched = ({"name": name, "path": str(path)} for name in names
               for path in _note_if_generated(name, fetch.fetch_named(name, trust), "fetch"))
    options.emit_stream(fetched, as_json, lambda file: plain(file["path"]))


@data.command("verify")
def data_verify(
    names: Annotated[list[str], typer.Argument(metavar="NAME...")],
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Verify the hashes of the files on this machine. Downloads nothing."""
    from embtrain.data.catalogue import fetch

    options.configure_output(quiet)
    verified = ({"name": name, "path": str(file.path), "where": file.where, "sha256": file.sha256}
                for name in names for file in _note_if_generated(name, fetch.verify_named(name), "check"))
    options.emit_stream(verified, as_json, lambda file: plain(f"{file['sha256']}  {file['path']}"))


@data.command("sentences")
def data_sentences(
    corpus: Annotated[str | None, typer.Argument(
        metavar="NAME|PATH", autocompletion=options.corpora, callback=options.check_corpus,
        help="Corpus: a name that `embtrain data list` prints, or the path of your own data.")] = None,
    side: Annotated[str, typer.Option(metavar="source|target", help="Language.")] = "target",
    part: Annotated[str, typer.Option(metavar="train|valid|test", help="Split.")] = "train",
    ends: Annotated[bool, typer.Option("--ends", help="Append </s> to each sentence, to train the row of the end of a "
                                                      "sentence.")] = False,
    overrides: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="Override a key of translation. Repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(
        metavar="FILE", readable=False, help="Output file (default: standard output).")] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Print one side of a parallel corpus. It is tokenized as a translator reads it, one sentence a line."""
    from embtrain.common.files import write_text
    from embtrain.common.output_paths import check_output_file
    from embtrain.experiment.inspect.sentences import sentences

    options.configure_output(quiet)
    out_file = None if out is None else check_output_file(out, inputs=[corpus] if corpus else ())
    lines = sentences(corpus, side, part, ends, overrides)
    if out_file is not None:
        write_text(out_file, "".join(f"{line}\n" for line in lines))
        options.emit({"file": str(out)}, as_json, lambda: plain(str(out)))
    elif as_json:
        options.emit_json_stream(lines, "sentences")
    else:
        for line in lines:
            data_line(line)


data.command("encode")(own_files.encode)


def _note_if_generated(name: str, files: list[T], verb: str) -> list[T]:
    """Return the files; print a note if there are none, because no output would look like a bug."""
    if not files:
        note(f"{name}: is generated when it is read; there is nothing to {verb}")
    return files


def _table(rows: list[DataRow]) -> str:
    cells = [("name", "kind", "bytes", "where", "licence")]
    cells += [(row.name, row.kind, "?" if row.size is None else f"{row.size:,}", plain(row.where), plain(row.licence))
              for row in rows]
    name, kind, size, where = (max(len(line[column]) for line in cells) for column in range(4))
    return "\n".join(f"{line[0]:<{name}}  {line[1]:<{kind}}  {line[2]:>{size}}  {line[3]:<{where}}  {line[4]}"
                     for line in cells)

"""The commands for files of the user: `check`, `config show`, `config schema` and `data encode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from embtrain.cli import options
from embtrain.common import machine
from embtrain.common.errors import DataError
from embtrain.common.terminal import format_part, plain, show

config = typer.Typer(invoke_without_command=True, rich_markup_mode=None, help="Settings in YAML files.")


def check(
    path: Annotated[Path, typer.Argument(
        metavar="FILE", readable=False, help="Python file with samplers (it is run), or YAML file of a strategy.")],
    deterministic: Annotated[bool, typer.Option(
        "--deterministic", help="The samplers draw the same under every seed.")] = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Check that your sampler keeps the contract of samplers.

    Prints each rule with its result. The exit code is 3 if one is broken. Prints - for a rule that does not apply.
    """
    from embtrain.testing.own_files import check_file, format_line

    options.configure_output(quiet)
    results = check_file(path, deterministic)
    rows = []
    for result in results:
        rows.append(result)
        if not as_json:
            show(format_line(result), flush=True)
    if as_json:
        options.emit([row._asdict() for row in rows], True, str)
    n_checked = sum(row.problem is not None for row in rows)
    if broken := [row for row in rows if row.problem]:
        part = format_part(len(broken), n_checked, "rules", "is", "are")
        raise DataError(f"{path}: {part} broken; correct {broken[0].source}: {broken[0].rule} first")
    if not as_json:
        show(f"{plain(str(path))}: {n_checked} rules hold; {len(rows) - n_checked} do not apply (-)")


@config.command("show")
def show_settings(
    key: Annotated[str | None, typer.Argument(
        metavar="KEY", help="Section or key, for example negatives or train.lr (default: all).")] = None,
    negatives: options.Strategy = None,
    model: options.Model = None,
    corpus: options.Corpus = None,
    loss: options.Loss = None,
    configuration: Annotated[Path | None, typer.Option(
        "--config", metavar="FILE", readable=False, callback=options.check_yaml,
        help="Your own YAML file, as for `embtrain fit` (default: none).")] = None,
    overrides: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="Override one key. Repeatable.")] = None,
    tuned: Annotated[bool, typer.Option("--tuned", help="Tuned settings of this model and corpus (default: no).")
                     ] = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Print all settings of a run, with a comment for each key.

    The output is a file for `embtrain fit --config FILE`.
    """
    from embtrain.common.config.described import as_yaml, describe
    from embtrain.experiment import resolve

    options.configure_output(quiet)
    flags = {"model.name": ("--model", model), "loss.name": ("--loss", loss)}
    with options.named_flags(flags):
        settings = resolve(negatives, model, corpus, loss, configuration, overrides, tuned=tuned)
    described = describe(settings, key or "")
    options.emit([{"key": row.key, "value": row.value, "description": row.description}
                  for row in described if not row.is_section], as_json, lambda: as_yaml(described))


@config.command("schema")
def schema(
    out: Annotated[Path | None, typer.Option(
        metavar="FILE", readable=False, help="Output file (default: standard output).")] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Print the JSON schema of the settings, for editors.

    In the first line of a YAML file: # yaml-language-server: $schema=PATH
    """
    from embtrain.common.files import write_json
    from embtrain.common.output_paths import check_output_file
    from embtrain.experiment.catalogue.schema import settings_schema

    options.configure_output(quiet)
    out_file = None if out is None else check_output_file(out)
    if out_file is None:
        options.emit(settings_schema(), True, str)
    else:
        write_json(out_file, settings_schema())
        options.emit({"file": str(out)}, as_json, lambda: plain(str(out)))


def encode(
    corpus: Annotated[str, typer.Argument(
        metavar="NAME|PATH", autocompletion=options.corpora, callback=options.check_corpus,
        help="Corpus: a name that `embtrain data list` prints, or the path of your own text.")],
    workers: Annotated[int | None, typer.Option(
        metavar="N", min=1, max=1024, help="Worker processes; short for --set text.workers=N (default: one per "
                                           "core).")] = None,
    model: Annotated[str | None, typer.Option(
        metavar="NAME", autocompletion=options.models,
        help="Model that learns from the text; its settings decide how it is read (default: skipgram).")] = None,
    configuration: Annotated[Path | None, typer.Option(
        "--config", metavar="FILE", readable=False, callback=options.check_yaml,
        help="Your own YAML file, as for `embtrain fit` (default: none).")] = None,
    overrides: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY.KEY=VALUE", help="Override one key. Repeatable.")] = None,
    dry_run: Annotated[bool, typer.Option(
        "--dry-run", help="Estimate seconds, memory and disk from a sample; store nothing.")] = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Read a large text into the cache with several processes.

    `embtrain fit` with the same settings then starts at once. An interrupted command goes on where it stopped.
    """
    from dataclasses import asdict

    from embtrain.data.text.corpus import ReadingConfig
    from embtrain.experiment import resolve
    from embtrain.experiment.inspect.encoding import encode_text, estimate_encoding
    from embtrain.experiment.tasks.base import find

    options.configure_output(quiet)
    settings = resolve(None, model, corpus, None, configuration, overrides)
    if isinstance(settings.data, ReadingConfig) and (workers or settings.data.workers == 1):
        cores = machine.usable_cores()
        key = f"{find(settings).section}.workers={workers or cores}"
        settings = resolve(None, model, corpus, None, configuration, [*(overrides or []), key])
    result = estimate_encoding(settings) if dry_run else encode_text(settings)
    options.emit(asdict(result), as_json, lambda: result)

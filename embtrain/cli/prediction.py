"""The commands `predict` and `translate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from embtrain.cli import options
from embtrain.common.errors import UsageError
from embtrain.common.terminal import data_line, note, show


def predict(
    run: options.RunFolder,
    query: Annotated[list[str] | None, typer.Argument(
        metavar="QUERY...|FILE", help="Graph: HEAD RELATION _ (or _ elsewhere, or a whole triple). Hierarchy: CONCEPT "
                                      "_ (or _ CONCEPT, or two). Labels: '3:0.5 17:1', a document. Text: a word, or "
                                      "the words before the next one. FILE: one query a line, or documents in a "
                                      "training format. -: standard input.")] = None,
    top: Annotated[int | None, typer.Option(
        metavar="N", min=1, max=10_000, help="Number of answers per query; not of translators (default: 5).")] = None,
    hide_known: Annotated[bool, typer.Option(
        "--hide-known", help="Omit answers that are training positives (graphs, hierarchies).")] = False,
    overrides: Annotated[list[str] | None, typer.Option(
        "--set", metavar="corpus=PATH", help="Current path of the corpus, for a run that stored too little of it "
                                             "(default: the run's).")
        ] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Predict with a trained model.

    Predicts labels, links, hypernyms, contexts, next words or translations.
    """
    from embtrain.experiment.prediction import predict as predictions

    options.configure_output(quiet)
    if unsupported := [text for text in overrides or [] if text.partition("=")[0].strip() != "corpus"]:
        raise UsageError(f"--set {unsupported[0]}: cannot be set for predictions; set only corpus=PATH")
    results = predictions.predict_words(run, query or [], top, hide_known, overrides or [])
    if as_json:
        options.emit_json_stream((result.to_json() for result in results), "predictions", results.counts)
    else:
        for result in results:
            show(predictions.format_text(result))
    results.check()
    if summary := results.summary():
        note(f"embtrain: {results.file}: {summary}")


def translate(
    run: options.RunFolder,
    file: Annotated[Path | None, typer.Argument(
        metavar="FILE", readable=False,
        help="Text, one sentence a line; may be compressed. Default: standard input.")] = None,
    batch: Annotated[int | None, typer.Option(
        metavar="N", min=1, max=10_000, help="Lines per batch (default: 100; 1 at a terminal).")] = None,
    beam: Annotated[int | None, typer.Option(
        metavar="N", min=1, max=100, help="Beam size; 1: greedy (default: the run's).")] = None,
    unknown: Annotated[str | None, typer.Option(
        metavar="ban|keep|copy", help="How to handle <unk> in the output; copy: the source word with the most "
                                      "attention (default: the run's).")] = None,
    duplicates: Annotated[str | None, typer.Option(
        metavar="keep|remove", help="How to handle a repeated word (default: the run's).")] = None,
    table: Annotated[str | None, typer.Option(
        metavar="float32|bfloat16", help="Precision of the word search (default: the run's).")] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Translate a file or standard input line by line. Empty lines stay empty."""
    if file is None and sys.stdin is None:
        raise UsageError("standard input: is closed; pass the lines to translate")
    from embtrain.common.config.shown import printable
    from embtrain.experiment.prediction import translator
    from embtrain.experiment.run import stored

    options.configure_output(quiet)
    options_by_key = {"beam": beam, "unknown": unknown, "duplicates": duplicates, "table": table}
    flags = {f"evaluate.{key}={value}": f"--{key} {value}"
             for key, value in options_by_key.items() if value is not None}
    components, task = stored.open_translator(run, list(flags), {f"--set {printable(text)}": flag
                                                                 for text, flag in flags.items()})
    batch_size = batch or (1 if file is None and sys.stdin.isatty() else translator.BATCH)
    translations = translator.translate_file(components, task, file, batch_size) if file is not None else \
        translator.translate_lines(components, task, translator.bounded_lines(sys.stdin.buffer), batch_size)
    if as_json:
        options.emit_json_stream(translations, "translations")
        return
    for line in translations:
        data_line(line, flush=batch_size == 1)

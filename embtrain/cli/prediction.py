"""The command `predict`."""

from __future__ import annotations

from typing import Annotated

import typer

from embtrain.cli import options
from embtrain.common.errors import UsageError
from embtrain.common.terminal import note, show


def predict(
    run: options.RunFolder,
    query: Annotated[list[str] | None, typer.Argument(
        metavar="QUERY...|FILE", help="Graph: HEAD RELATION _ (or _ elsewhere, or a whole triple). Hierarchy: CONCEPT "
                                      "_ (or _ CONCEPT, or two). Labels: '3:0.5 17:1', a document. Text: a word, or "
                                      "the words before the next one. FILE: one query a line, or documents in a "
                                      "training format. -: standard input.")] = None,
    top: Annotated[int, typer.Option(min=1, max=10_000, help="Number of answers per query.")] = 5,
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

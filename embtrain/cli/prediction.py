"""The command `predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from embtrain.cli import options
from embtrain.common.errors import UsageError
from embtrain.common.terminal import note, show


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    query: Annotated[list[str] | None, typer.Argument(
        metavar="QUERY...|FILE", help="Graph: HEAD RELATION _ (or _ elsewhere, or a whole triple). Hierarchy: CONCEPT "
        "_ (or _ CONCEPT, or two). Labels: '3:0.5 17:1', a document. Text: a word, or the words before the next "
        "one. FILE: a query a line; documents in a format of training. -: standard input.")] = None,
    top: Annotated[int, typer.Option(min=1, max=10_000, help="Answers to each query.")] = 5,
    hide_known: Annotated[bool, typer.Option(
        "--hide-known", help="Leave out answers that are positives of training (graphs, hierarchies).")] = False,
    sets: Annotated[list[str] | None, typer.Option(
        "--set", metavar="corpus=PATH", help="Where the corpus is now, for a run that kept too little of it.")
        ] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Predict with a trained model: labels, links, hypernyms, contexts, next words, translations."""
    from embtrain.experiment.prediction import predict as predictions

    options.hush(quiet)
    if wrong := [text for text in sets or [] if text.partition("=")[0].strip() != "corpus"]:
        raise UsageError(f"--set {wrong[0]}: only corpus=PATH can be set for predictions")
    found = predictions.predict_words(run, query or [], top, hide_known, sets or [])
    if as_json:
        options.stream((one.to_json() for one in found), "predictions", found.counts)
    else:
        for one in found:
            show(predictions.format_text(one))
    found.check()
    if said := found.summary():
        note(f"embtrain: {found.file}: {said}")

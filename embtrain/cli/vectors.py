"""The commands that read vectors: neighbours and export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from embtrain.cli import options
from embtrain.common.terminal import plain, show


def neighbours(what: options.What,
               words: Annotated[list[str], typer.Argument(metavar="WORD...")],
               count: Annotated[int, typer.Option(min=1, max=1000, help="Neighbours of each word.")] = 10,
               limit: options.Limit = None,
               encoding: options.Encoding = None,
               as_json: options.Json = False) -> None:
    """The nearest words of each word."""
    from embtrain.experiment.inspect import evaluate

    options.hush(False)
    found = evaluate.neighbours(what, words, count, *options.reading(limit, encoding))
    options.answer(evaluate.as_tree(found), as_json, lambda: evaluate.format_text(found))


def export(what: options.What,
           out: Annotated[Path, typer.Option(metavar="PATH", help="File, or folder, to write.")],
           format: Annotated[str, typer.Option(
               metavar="NAME", help="File: word2vec (text), word2vec-binary, glove, safetensors. Folder: huggingface, "
                                    "projector, pykeen.")] = "word2vec",
           limit: options.Limit = None,
           encoding: options.Encoding = None) -> None:
    """Write vectors for other programs."""
    from embtrain import experiment
    from embtrain.common.files import resolve_output_link

    options.hush(False)
    experiment.export(what, format, resolve_output_link(out), *options.reading(limit, encoding))
    show(plain(str(out)))

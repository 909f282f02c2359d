"""The commands `neighbours` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from embtrain.cli import options
from embtrain.common.terminal import plain, show


def neighbours(path: options.Vectors,
               words: Annotated[list[str], typer.Argument(metavar="WORD...")],
               count: Annotated[int, typer.Option(min=1, max=1000, help="Number of neighbours per word.")] = 10,
               limit: options.Limit = None,
               encoding: options.Encoding = None,
               as_json: options.Json = False) -> None:
    """Print the nearest neighbours of each word."""
    from embtrain.experiment.inspect import neighbours as nearest

    options.configure_output(False)
    result = nearest.neighbours(path, words, count, *options.read_options(limit, encoding))
    options.emit(nearest.as_tree(result), as_json, lambda: nearest.format_text(result))


def export(path: options.Vectors,
           out: Annotated[Path, typer.Option(metavar="PATH", help="Output file or folder.")],
           format: Annotated[str, typer.Option(
               metavar="NAME", help="File: word2vec (text), word2vec-binary, glove, safetensors. Folder: huggingface, "
                                    "projector, pykeen.")] = "word2vec",
           limit: options.Limit = None,
           encoding: options.Encoding = None) -> None:
    """Export vectors to the formats of other programs."""
    from embtrain import experiment
    from embtrain.common.files import resolve_output_link

    options.configure_output(False)
    experiment.export(path, format, resolve_output_link(out), *options.read_options(limit, encoding))
    show(plain(str(out)))

"""The commands `neighbours`, `export` and `align`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from embtrain.cli import options
from embtrain.common.terminal import note, plain


def neighbours(path: options.Vectors,
               words: Annotated[list[str], typer.Argument(metavar="WORD...")],
               count: Annotated[int, typer.Option(
        metavar="N", min=1, max=1000, help="Number of neighbours per word.")] = 10,
               limit: options.Limit = None,
               encoding: options.Encoding = None,
               quiet: options.Quiet = False,
               as_json: options.Json = False) -> None:
    """Print the nearest neighbours of each word."""
    from embtrain.experiment.inspect import neighbours as nearest

    options.configure_output(quiet)
    result = nearest.neighbours(path, words, count, *options.read_options(limit, encoding))
    options.emit(nearest.as_tree(result), as_json, lambda: nearest.format_text(result))


def export(path: options.Vectors,
           out: Annotated[Path, typer.Option(metavar="PATH", readable=False, help="Output file or folder.")],
           format: Annotated[str, typer.Option(
               metavar="NAME", help="File: word2vec (text), word2vec-binary, glove, safetensors, fasttext. Folder: "
                                    "faiss, usearch, huggingface, projector, pykeen.")] = "word2vec",
           dtype: Annotated[str, typer.Option(
               metavar="NAME", help="float32, float16 (safetensors, faiss, usearch) or int8 (faiss, usearch).")
           ] = "float32",
           index: Annotated[str, typer.Option(
               metavar="NAME", help="Index of faiss: flat (exact) or hnsw (a graph); auto: flat up to 100,000 words.")
           ] = "auto",
           limit: options.Limit = None,
           encoding: options.Encoding = None,
           quiet: options.Quiet = False,
           as_json: options.Json = False) -> None:
    """Export vectors to the formats of other programs."""
    from embtrain import experiment
    from embtrain.common.output_paths import resolve_output_link
    from embtrain.data.vectors.open import BY_OPTIONS

    options.configure_output(quiet)
    (reading,) = options.read_options(limit, encoding) or (BY_OPTIONS,)
    kept = experiment.export(path, format, resolve_output_link(out), reading, dtype, index)
    lost = "" if kept is None else str(kept)
    options.emit({"file": str(out), "note": lost}, as_json, lambda: plain(str(out)))
    if lost and not as_json:
        note(f"{out}: {lost}")


def align(first: Annotated[Path, typer.Argument(
              metavar="A", readable=False, callback=options.check_vectors,
              help="Run folder or vector file, which is rotated.")],
          second: Annotated[Path, typer.Argument(
              metavar="B", readable=False, callback=options.check_vectors,
              help="Run folder or vector file, which stays.")],
          out: Annotated[Path | None, typer.Option(
              metavar="FILE", readable=False, help="Write all vectors of A, rotated (default: none).")] = None,
          format: Annotated[str | None, typer.Option(
              metavar="NAME", help="Format of --out: word2vec (text), word2vec-binary, glove, safetensors, fasttext "
                                   "(default: word2vec).")] = None,
          most_frequent: Annotated[int | None, typer.Option(
              min=1, metavar="N", help="Align only the N most frequent common words (default: all).")] = None,
          words: Annotated[Path | None, typer.Option(
              metavar="FILE", readable=False,
              help="Align only the words of this file, one a line (default: all).")] = None,
          count: Annotated[int, typer.Option(
        metavar="N", min=1, max=100_000, help="Number of changed words to list.")] = 10,
          limit: options.Limit = None,
          encoding: options.Encoding = None,
          quiet: options.Quiet = False,
          as_json: options.Json = False) -> None:
    """Rotate vectors onto others; list the words that changed most."""
    from embtrain.experiment.inspect import align as aligning

    options.configure_output(quiet)
    alignment = aligning.align(first, second, out, format, most_frequent, words, count,
                               *options.read_options(limit, encoding))
    options.emit(alignment.tree(), as_json, lambda: aligning.format_text(alignment))

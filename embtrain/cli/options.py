"""What the options of several commands share: the names that a shell completes, being quiet, and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from embtrain.common import terminal
from embtrain.common.errors import UsageError

if TYPE_CHECKING:
    from embtrain.data.vectors.open import ReadOptions

Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr; warnings and errors remain.")]
Json = Annotated[bool, typer.Option("--json", help="The answer as one JSON value on stdout.")]

What = Annotated[Path, typer.Argument(metavar="WHAT", help="Folder of a run, or a file of vectors (word2vec, GloVe).")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="Read the first N vectors alone.")]
Encoding = Annotated[str | None, typer.Option(
    "--encoding", metavar="NAME", help="Encoding of the words of a file of vectors, such as latin-1, not UTF-8.")]


def reading(limit: int | None, encoding: str | None) -> tuple[ReadOptions, ...]:
    """How a file of vectors is read; empty if no option says so."""
    from embtrain.data.vectors.open import ReadOptions

    return () if limit is None and encoding is None else (ReadOptions(limit, encoding or "utf-8"),)


def strategies() -> list[str]:
    from embtrain.common import shipped

    return shipped.names("configs", "strategies")


def models() -> list[str]:
    from embtrain.common import shipped

    return shipped.names("configs", "models")


def corpora() -> list[str]:
    from embtrain.common import shipped

    return shipped.names("corpora")


def papers() -> list[str]:
    from embtrain.common import shipped

    return shipped.names("configs", "paper")


def benchmarks() -> list[str]:
    from embtrain.common import shipped

    return shipped.names("evals")


def hush(quiet: bool) -> None:
    import logging

    from embtrain.common import progress

    progress.quiet = quiet
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(terminal.OneLine())
    logging.basicConfig(handlers=[to_stderr], level=logging.WARNING)


def names(text: str | None, flag: str) -> list[str] | None:
    """The names between the commas."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(f"{flag}: {text!r} should be names with commas between them")
    return names


def answer(value: Any, as_json: bool, text: Callable[[], object]) -> None:
    """Print what a command answers: one JSON value, or the text that says the same."""
    import codecs
    import json
    import sys

    # Of JSON a letter that the terminal cannot show is written as JSON writes it, and not as `backslashreplace` would.
    plain = codecs.lookup(sys.stdout.encoding or "ascii").name != "utf-8"
    if as_json:
        print(terminal.json_escaped(json.dumps(value, indent=1, ensure_ascii=plain, allow_nan=False)))
    else:
        terminal.show(str(text()))


def stream(values: Iterable[dict[str, Any]], key: str, after: Callable[[], dict[str, Any]]) -> None:
    """Print one JSON object: the values under `key`, each as soon as it is computed, then what `after` returns."""
    import codecs
    import json
    import sys

    plain = codecs.lookup(sys.stdout.encoding or "ascii").name != "utf-8"
    def text(value: Any) -> str:
        return terminal.json_escaped(json.dumps(value, ensure_ascii=plain, allow_nan=False))

    begun = False
    for value in values:
        print(",\n " + text(value) if begun else f'{{"{key}": [\n ' + text(value), end="")
        begun = True
    print("\n]" + "".join(f', "{name}": {text(value)}' for name, value in after().items()) + "}")


def answers(values: Iterable[dict[str, str]], as_json: bool, line: Callable[[dict[str, str]], str]) -> None:
    """The same of what comes bit by bit: a list, or a line of each as soon as it is there."""
    if as_json:
        answer(list(values), as_json, str)
    else:
        for value in values:
            terminal.show(line(value), flush=True)

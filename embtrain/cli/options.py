"""Options shared by several commands: shell completion, quiet mode and JSON output."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from embtrain.common import terminal
from embtrain.common.errors import UsageError

if TYPE_CHECKING:
    from embtrain.data.vectors.open import ReadOptions

Quiet = Annotated[bool, typer.Option("--quiet", help="Do not print progress; warnings and errors remain.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON value.")]

Vectors = Annotated[Path, typer.Argument(metavar="PATH", help="Run folder, or vector file (word2vec, GloVe).")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="Read only the first N vectors.")]
Encoding = Annotated[str | None, typer.Option(
    "--encoding", metavar="NAME", help="Encoding of the words in a vector file, e.g. latin-1 (default: UTF-8).")]

Join = Annotated[bool, typer.Option(
    "--join", help="Train the runs together with all machines that execute the same command on the same --out.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="With --join: run failed runs once more.")]
LeaseSeconds = Annotated[float | None, typer.Option(
    "--lease-seconds", min=1, help="With --join: seconds without a sign of life after which a run is taken over from "
                                   "its machine (default: 20).")]


def sharing(join: bool, retry_failed: bool, lease_seconds: float | None) -> dict[str, Any]:
    """The arguments for a comparison on several machines; empty without --join. UsageError for its other options."""
    from embtrain.experiment.comparison.shared.sharing import STALE_AFTER, Sharing

    if join:
        return {"sharing": Sharing(lease_seconds or STALE_AFTER, retry_failed)}
    if retry_failed or lease_seconds is not None:
        raise UsageError(f"{'--retry-failed' if retry_failed else '--lease-seconds'}: needs --join")
    return {}


def read_options(limit: int | None, encoding: str | None) -> tuple[ReadOptions, ...]:
    """The options for reading a vector file; empty if none was given."""
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


def configure_output(quiet: bool) -> None:
    """Turn progress off if `quiet`, and send warnings to standard error, one line each."""
    import logging

    from embtrain.common import progress

    progress.quiet = quiet
    to_stderr = logging.StreamHandler()
    to_stderr.setFormatter(terminal.OneLine())
    logging.basicConfig(handlers=[to_stderr], level=logging.WARNING)


def names(text: str | None, flag: str) -> list[str] | None:
    """Split names at commas. Raises UsageError for an empty name."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(f"{flag}: {text!r} should be names, separated by commas")
    return names


def emit(value: Any, as_json: bool, text: Callable[[], object]) -> None:
    """Print the result of a command: one JSON value, or the equivalent text."""
    import codecs
    import json
    import sys

    # JSON escapes characters that the terminal cannot show in its own way; `backslashreplace` would break it.
    ascii_only = codecs.lookup(sys.stdout.encoding or "ascii").name != "utf-8"
    if as_json:
        print(terminal.json_escaped(json.dumps(value, indent=1, ensure_ascii=ascii_only, allow_nan=False)))
    else:
        terminal.show(str(text()))


def emit_json_stream(values: Iterable[dict[str, Any]], key: str, after: Callable[[], dict[str, Any]]) -> None:
    """Print one JSON object: the values under `key`, each as soon as it is computed, then what `after` returns."""
    import codecs
    import json
    import sys

    ascii_only = codecs.lookup(sys.stdout.encoding or "ascii").name != "utf-8"
    def text(value: Any) -> str:
        return terminal.json_escaped(json.dumps(value, ensure_ascii=ascii_only, allow_nan=False))

    begun = False
    for value in values:
        print(",\n " + text(value) if begun else f'{{"{key}": [\n ' + text(value), end="")
        begun = True
    print("\n]" + "".join(f', "{name}": {text(value)}' for name, value in after().items()) + "}")


def emit_stream(values: Iterable[dict[str, str]], as_json: bool, line: Callable[[dict[str, str]], str]) -> None:
    """Print several results: one JSON list, or one line for each as soon as it is computed."""
    if as_json:
        emit(list(values), as_json, str)
    else:
        for value in values:
            terminal.show(line(value), flush=True)

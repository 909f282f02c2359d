"""What the options of several commands share: the names that a shell completes, and being quiet."""

from __future__ import annotations

from typing import Annotated

import typer

from embtrain.errors import UsageError

Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]


def strategies() -> list[str]:
    from embtrain import shipped

    return shipped.names("configs", "negatives")


def models() -> list[str]:
    from embtrain import shipped

    return shipped.names("configs", "models")


def corpora() -> list[str]:
    from embtrain import shipped

    return shipped.names("corpora")


def papers() -> list[str]:
    from embtrain import shipped

    return shipped.names("configs", "paper")


def benchmarks() -> list[str]:
    from embtrain import shipped

    return shipped.names("evals")


def hush(quiet: bool) -> None:
    import logging

    from embtrain import progress

    progress.quiet = quiet
    logging.basicConfig(format="embtrain: %(message)s", level=logging.ERROR if quiet else logging.WARNING)


def names(text: str | None, flag: str) -> list[str] | None:
    """The names between the commas."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(f"{flag}: {text!r} should be names with commas between them")
    return names

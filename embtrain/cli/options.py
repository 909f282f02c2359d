"""What the options of several commands share: the names that a shell completes, and being quiet."""

from __future__ import annotations

from typing import Annotated

import typer

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

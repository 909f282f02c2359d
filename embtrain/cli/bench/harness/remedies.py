"""Remedies for errors in a bench, which has no --set: another corpus, or other cases."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from embtrain.common import shipped
from embtrain.common.errors import EmbtrainError, ResourceError

OWN = re.compile("--|bench ")                  # beginnings of errors of a bench itself
DOTTED = re.compile(r"[a-z_]+(?:\.[a-z_]+)+")
OF_MACHINE = {"train.engine", "train.device"}  # keys of errors that no corpus helps against


@contextlib.contextmanager
def of_bench(has_corpus: bool) -> Iterator[None]:
    """Add what the options of a bench can change to errors of the block that name keys of settings."""
    try:
        yield
    except EmbtrainError as error:
        size = "smaller" if isinstance(error, ResourceError) else "larger"
        corpus = f"another --corpus, for example a {size} one, or " if has_corpus else ""
        remedy = f"; embtrain bench has no --set: give {corpus}other cases with --only"
        lines = [f"{line}{remedy * _names_a_key(line)}" for line in error.args]
        if lines == list(error.args):
            raise
        raise type(error)(*lines) from error


def _names_a_key(line: str) -> bool:
    found = set[str]() if OWN.match(line) else set(DOTTED.findall(line))
    return bool(found) and found.isdisjoint(OF_MACHINE) and not found.isdisjoint(shipped.setting_keys())

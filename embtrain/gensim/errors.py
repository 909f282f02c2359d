"""Errors of the drop-in classes: one line each, and of the type that gensim raises."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from embtrain.common.errors import DataError, UsageError


class ArgumentError(UsageError, ValueError):
    """An argument of a class or of its methods that cannot work."""


class ArgumentTypeError(UsageError, TypeError):
    """An argument of a type that cannot work."""


class MissingFileError(DataError, FileNotFoundError):
    """A model file that does not exist."""


class SentencesError(DataError, TypeError):
    """Sentences that are not lists of words, or that can be read only once."""


@contextmanager
def settings_of_file(path: str | os.PathLike[str], remedy: str) -> Iterator[None]:
    """Raise a UsageError for settings that a file contains as a DataError that names it: of several the first."""
    try:
        yield
    except UsageError as error:
        raise DataError(f"{path}: its settings cannot be used: {error.args[0]}; {remedy}") from error

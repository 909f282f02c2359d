"""Errors of the drop-in classes: one line each, and of the type that gensim raises."""

from __future__ import annotations

import importlib
import importlib.util
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


def missing_name(package: str, name: str) -> Exception:
    """Return the error of a name that a package lacks: ImportError with the remedy if gensim's package has it.

    package: of embtrain.gensim, without `embtrain.`.
    """
    theirs = importlib.import_module(package)
    if name.startswith("_") or not (hasattr(theirs, name) or importlib.util.find_spec(f"{package}.{name}")):
        return AttributeError(f"module 'embtrain.{package}' has no attribute {name!r:.60}")
    return ImportError(f"embtrain.{package}: {name}: embtrain replaces only Word2Vec, FastText and KeyedVectors; write "
                       f"`from {package} import {name}`")


@contextmanager
def settings_of_file(path: str | os.PathLike[str], remedy: str) -> Iterator[None]:
    """Raise a UsageError for settings that a file contains as a DataError that names it: of several the first."""
    try:
        yield
    except UsageError as error:
        raise DataError(f"{path}: its settings cannot be used: {error.args[0]}; {remedy}") from error

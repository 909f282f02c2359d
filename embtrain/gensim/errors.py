"""Errors of the drop-in classes: one line each, and of the type that gensim raises."""

from __future__ import annotations

from embtrain.common.errors import DataError, UsageError


class ArgumentError(UsageError, ValueError):
    """An argument of a class or of its methods that cannot work."""


class ArgumentTypeError(UsageError, TypeError):
    """An argument of a type that cannot work."""


class MissingFileError(DataError, FileNotFoundError):
    """A model file that does not exist."""


class SentencesError(DataError, TypeError):
    """Sentences that are not lists of words, or that can be read only once."""

"""Incremental XML through expat. Entities of a DTD are rejected, because they may expand without end."""

from __future__ import annotations

from collections.abc import Iterator
from xml.parsers import expat

from embtrain.common.errors import DataError
from embtrain.data.storage.containers import Source

CHUNK = 1 << 20  # bytes at once


def create_parser(source: Source) -> expat.XMLParserType:
    """Create a parser that raises DataError for entity declarations; tags are `namespace}tag`."""
    parser = expat.ParserCreate(namespace_separator="}")

    def entity(name: str, *_: object) -> None:
        raise DataError(f"{source.name}:{parser.CurrentLineNumber}: declares the entity {name!r}; remove the "
                        "declaration")

    parser.EntityDeclHandler = entity
    return parser


def feed(source: Source, parser: expat.XMLParserType, expected: str) -> Iterator[None]:
    """Parse the stream, and yield after each piece. DataError if it is not XML; `expected` is named in it."""
    try:
        while data := source.stream.read(CHUNK):
            parser.Parse(data, False)
            yield
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise DataError(f"{source.name}:{error.lineno}: {expat.errors.messages[error.code]}; expected "
                        f"{expected}") from error
    except (LookupError, ValueError) as error:
        raise encoding_error(source, error) from error
    yield


def encoding_error(source: Source, error: Exception) -> DataError:
    """Return the error for an unsupported encoding.

    Expat has few encodings, and gets from Python only those of one byte a character.
    """
    return DataError(f"{source.name}: is in an unsupported XML encoding ({error}); convert it to UTF-8, and declare "
                     "that in its first line")

"""XML that is read piece by piece, by expat: entities of a DTD are refused, for they may unfold without end."""

from __future__ import annotations

from collections.abc import Iterator
from xml.parsers import expat

from embtrain.common.errors import DataError
from embtrain.data.storage.containers import Source

CHUNK = 1 << 20  # bytes at once


def create_parser(source: Source) -> expat.XMLParserType:
    """Tags come as `namespace}tag`."""
    parser = expat.ParserCreate(namespace_separator="}")

    def entity(name: str, *_: object) -> None:
        raise DataError(f"{source.name}:{parser.CurrentLineNumber}: declares the entity {name!r}; XML with "
                        "entity declarations is not read")

    parser.EntityDeclHandler = entity
    return parser


def feed(source: Source, parser: expat.XMLParserType, expected: str) -> Iterator[None]:
    """Comes by after each piece that the parser has read. DataError where it is not XML; `what` was expected."""
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
    """Expat knows few encodings, and asks Python for those of one byte a character alone."""
    return DataError(f"{source.name}: is in an encoding that is not read from XML ({error}); convert it to UTF-8, and "
                     "say so in its first line")

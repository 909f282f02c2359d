"""A hint for bytes that are not UTF-8: their likely encoding, and the command that converts them."""

from __future__ import annotations

import codecs

UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def encoding_hint(head: bytes) -> str:
    """Return the end of an error line. head: the first bytes of a file, or a line of it.

    Spreadsheets and editors of Windows write UTF-16 as "Unicode", and Windows-1252 if no encoding is chosen.
    """
    wide = head.startswith(UTF16_MARKS) or b"\0" in head
    return f"convert it to UTF-8, e.g. with iconv -f {'UTF-16' if wide else 'WINDOWS-1252'} -t UTF-8"

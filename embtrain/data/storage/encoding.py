"""What to say of bytes that are no UTF-8: which encoding they are probably in, and what mends them."""

from __future__ import annotations

import codecs

UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def encoding_hint(head: bytes) -> str:
    """The end of an error line. head: the first bytes of a file, or a line of it.

    Spreadsheets and editors of Windows write UTF-16 where they say Unicode, and Windows-1252 where they say nothing.
    """
    wide = head.startswith(UTF16_MARKS) or b"\0" in head
    return f"convert it to UTF-8, such as by: iconv -f {'UTF-16' if wide else 'WINDOWS-1252'} -t UTF-8"

"""Arrays in .npy files, whose headers are examined before NumPy parses them.

A header is a Python literal, and NumPy parses it with ast.literal_eval, which ends in a MemoryError, a RecursionError
or a TokenError for one that nests. A header of numbers is short and has no expression inside, so it is matched first.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Literal

import numpy as np

LONGEST = 10_000  # bytes of a header, as many as NumPy reads
_MAGIC = b"\x93NUMPY"
_KEY = rb"""\s*+(?:'descr'\s*+:\s*+'[<>|=]?\w{1,8}'|"descr"\s*+:\s*+"[<>|=]?\w{1,8}"|""" \
       rb"""['"]fortran_order['"]\s*+:\s*+(?:True|False)|['"]shape['"]\s*+:\s*+\((?P<shape>[\d\s,L]*+)\))\s*+"""
_ONE = re.compile(_KEY)
_HEADER = re.compile(rb"\s*+\{" + rb",".join(_KEY.replace(b"?P<shape>", b"?:") for _ in range(3)) + rb",?\s*+\}\s*+")


def load(path: Path, mmap_mode: Literal["r"] | None = None) -> np.ndarray:
    """Load an array of numbers. OSError if it cannot be read, ValueError if it is not a whole array of numbers."""
    with open(path, "rb") as file:
        head = file.read(len(_MAGIC) + 6 + LONGEST)
    if not head.startswith(_MAGIC) or len(head) < len(_MAGIC) + 6:
        raise ValueError("has no .npy header")
    width = 2 if head[6] == 1 else 4
    begin = 8 + width
    size = int.from_bytes(head[8:begin], "little")
    if size > LONGEST or begin + size > len(head):
        raise ValueError(f"its header has {size:,} bytes; it should be complete and have at most {LONGEST:,}")
    header = head[begin:begin + size]
    if _HEADER.fullmatch(header) is None:
        raise ValueError("its header does not describe an array of numbers")
    shape = next(found["shape"] for found in _ONE.finditer(header) if found["shape"] is not None)
    lengths = [int(number) for number in re.findall(rb"\d{1,19}", shape)]
    if len(lengths) > 32 or math.prod(lengths) > path.stat().st_size - begin - size:
        raise ValueError("its header declares more numbers than the file has bytes")
    return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)

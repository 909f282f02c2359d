"""File names and source hash of the compiled library.

build_core.py reads this file before anything is installed, so it may import only the standard library.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from pathlib import Path

# A level is a generation of processors. x86-64-v2: all since 2009; v3 (AVX2, FMA): since 2013; v4 (AVX-512): servers
# since 2019, AMD from Zen 4 on.
LEVELS: tuple[str, ...] = ("v2", "v3", "v4") if platform.machine().lower() in ("x86_64", "amd64") else ("generic",)
MIN_CPU_LEVEL = {"v2": 2, "v3": 3, "v4": 4}  # minimum result of embtrain_level()
SANITIZED = "san"  # built only by `python build_core.py --sanitize`, loaded only by EMBTRAIN_CORE_LEVEL=san
# the sources need a POSIX compiler and 128-bit products
IS_SUPPORTED_PLATFORM = sys.platform != "win32" and sys.maxsize > 2 ** 32

FOLDER = Path(__file__).parents[1]  # embtrain/kernels
SOURCE = FOLDER / "source"


def core_file(level: str, folder: Path = FOLDER) -> Path:
    return folder / f"_core_{level}.so"


def sources(folder: Path = SOURCE) -> list[Path]:
    return sorted([*folder.rglob("*.cpp"), *folder.rglob("*.h")], key=lambda path: path.relative_to(folder).as_posix())


def source_hash(folder: Path = SOURCE) -> str:
    """Hash the names and bytes of the sources, in 32 hexadecimal digits. A library stores the hash of its own sources.
    """
    total = hashlib.sha256()
    for path in sources(folder):
        text = path.read_bytes()
        total.update(f"{path.relative_to(folder).as_posix()} {len(text)}\n".encode() + text)
    return total.hexdigest()[:32]

"""What the files of the core are called and how their sources are told apart.

build_core.py reads this file too, when nothing is installed yet: it imports the standard library alone.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from pathlib import Path

# A level is a generation of processors. x86-64-v2: every one since 2009; v3 (AVX2, FMA): since 2013; v4 (AVX-512):
# servers since 2019, AMD from Zen 4 on.
LEVELS: tuple[str, ...] = ("v2", "v3", "v4") if platform.machine().lower() in ("x86_64", "amd64") else ("generic",)
MIN_CPU_LEVEL = {"v2": 2, "v3": 3, "v4": 4}  # what embtrain_level() must say
SANITIZED = "san"  # built by `python build_core.py --sanitize` alone, loaded by EMBTRAIN_CORE_LEVEL=san alone
# the sources want a POSIX compiler and 128-bit products
IS_SUPPORTED_PLATFORM = sys.platform != "win32" and sys.maxsize > 2 ** 32

FOLDER = Path(__file__).parents[1]  # embtrain/kernels
SOURCE = FOLDER / "source"


def core_file(level: str, folder: Path = FOLDER) -> Path:
    return folder / f"_core_{level}.so"


def sources(folder: Path = SOURCE) -> list[Path]:
    return sorted([*folder.rglob("*.cpp"), *folder.rglob("*.h")], key=lambda path: path.relative_to(folder).as_posix())


def source_hash(folder: Path = SOURCE) -> str:
    """Names and bytes of the sources in 32 hexadecimal digits; a core holds that of the sources it was built from."""
    total = hashlib.sha256()
    for path in sources(folder):
        text = path.read_bytes()
        total.update(f"{path.relative_to(folder).as_posix()} {len(text)}\n".encode() + text)
    return total.hexdigest()[:32]

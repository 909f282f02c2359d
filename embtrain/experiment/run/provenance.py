"""identity.json: provenance of a run, enough to decide whether two runs can be compared."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

import embtrain
from embtrain.common import machine, registry
from embtrain.common.config.layers import printable
from embtrain.common.files import read_json
from embtrain.experiment.run.components import Components
from embtrain.kernels.core import loader


def describe_run(parts: Components, threads: int) -> dict[str, Any]:
    """Return the provenance record of a run: corpus, command, code, threads, engine and machine."""
    return {"task": parts.task.name, "corpus": parts.task.identity, "argv": sys.argv,
            "embtrain": embtrain.__version__, "code": code_sha256(), "commit": commit(),
            "threads": threads,
            "engine": parts.train.engine, "block": parts.train.chunk, "core": loader.level(),
            "cores": os.cpu_count(), "machine": platform.machine(), "host": platform.node(),
            "processor": machine.processor(), "python": platform.python_version(),
            "torch": torch.__version__, "gensim": machine.package_version("gensim"),
            "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z")}


def code_difference(folder: Path) -> str:
    """Describe in words how the code that started the run in `folder` differs from the current code.

    Empty if it does not differ, or if identity.json does not state it.
    """
    try:
        identity = read_json(folder / "identity.json")
        version, code = identity["embtrain"], identity["code"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    if not isinstance(version, str) or not isinstance(code, str) or code == (current := code_sha256()):
        return ""
    return (f"embtrain {printable(version)} with code {printable(code[:12])} started it, but this is embtrain "
            f"{embtrain.__version__} with code {current[:12]}")


def commit() -> str | None:
    """Return the commit of the checkout, with `-dirty` if tracked files have changed since; None outside a checkout."""
    root = Path(embtrain.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
                              capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


@functools.cache  # a process runs the code that it has imported, and a search describes many runs
def code_sha256() -> str:
    """One hash over the Python files of the package and of EMBTRAIN_PLUGINS, so that changed code can be recognized."""
    root, digest = Path(embtrain.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    for path in registry.plugin_files():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()

"""identity.json: provenance of a run, enough to decide whether two runs can be compared."""

from __future__ import annotations

import functools
import hashlib
import logging
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
from embtrain.common.config.shown import printable
from embtrain.common.files import read_json
from embtrain.experiment.run.components import Components
from embtrain.kernels.core import loader

_log = logging.getLogger("embtrain")


def describe_run(parts: Components, threads: int) -> dict[str, Any]:
    """Return the provenance record of a run: corpus, command, code, threads, engine and machine."""
    return {"task": parts.task.name, "corpus": parts.task.identity, "argv": sys.argv,
            "embtrain": embtrain.__version__, "code": code_sha256(), "commit": commit(),
            "plugins": plugin_hashes(parts), "threads": threads,
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
        version, code, plugins = identity["embtrain"], identity["code"], identity.get("plugins")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    differences = []
    if isinstance(version, str) and isinstance(code, str) and code != (current := code_sha256()):
        differences.append(f"embtrain {printable(version)} with code {printable(code[:12])} started it, but this is "
                           f"embtrain {embtrain.__version__} with code {current[:12]}")
    present = {(path.name, _file_sha256(path)) for path in registry.plugin_files()}
    differences += [f"another version of {printable(name)} started it, with sha256 {printable(str(sha256)[:12])}"
                    for name, sha256 in (plugins.items() if isinstance(plugins, dict) else ())
                    if (name, sha256) not in present]
    return "; ".join(differences)


def warn_of_other_code(folder: Path) -> None:
    """Warn if another version of the code started the run."""
    if code_change := code_difference(folder):
        _log.warning("warning: %s: %s; results may differ from those of a run under one version", folder, code_change)


def plugin_hashes(parts: Components) -> dict[str, str]:
    """Return {file name: sha256} of the files of EMBTRAIN_PLUGINS that define the model, sources or loss of a run."""
    used, sources = set[Path](), [parts.source]
    for source in sources:
        sources += source.inner_sources()
    for component in (parts.model, parts.loss, *sources):
        used |= registry.plugins_of(type(component))
    return {path.name: _file_sha256(path) for path in sorted(used)}


def _file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@functools.cache  # as `code_sha256`: git takes as long as a short run
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
    """One hash over the Python files of the package, so that changed code can be recognized."""
    root, digest = Path(embtrain.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()

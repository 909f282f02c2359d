"""`embtrain doctor`: versions, compiled core, memory, cache and engines of this installation."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from embtrain.common import machine
from embtrain.common.errors import EmbtrainError, ResourceError
from embtrain.kernels.core.loader import core, describe

PACKAGES = ("numpy", "gensim", "safetensors", "pydantic", "matplotlib", "scipy", "pooch")


def collect() -> dict[str, str]:
    """Return {check: result} in the order in which they are printed."""
    lines = [("embtrain", f"{machine.package_version('embtrain')}, in {Path(__file__).parents[1]}"),
             ("python", f"{platform.python_version()} on {platform.platform()}")]
    lines += [(name, machine.package_version(name)) for name in PACKAGES]
    return dict([*lines, *_torch(), ("core", describe()), ("memory", _memory()), *_data()])


def format_text(report: Mapping[str, str]) -> str:
    return "\n".join(f"{name:<13} {value}" for name, value in report.items())


def _torch() -> list[tuple[str, str]]:
    cores = machine.usable_cores()
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a shared library of another build
        return [("torch", f"cannot be imported: {error}"), ("cores", str(cores)), ("engine", "none")]
    threads = torch.get_num_threads()
    build = f"CUDA {torch.version.cuda} build" if torch.version.cuda else "CPU build"
    return [("torch", f"{torch.__version__} ({build})"),
            ("cores", f"{cores}, torch uses {threads} thread{'s' * (threads != 1)}"),
            ("devices", ", ".join(["cpu", *_cuda()])),
            ("engine", _engines())]


def _engines() -> str:
    try:
        return "autograd" if core() is None else "fused, autograd"
    except EmbtrainError:
        return "none: the core was rejected"


def _cuda() -> list[str]:
    import torch

    if not torch.cuda.is_available():
        return []
    names = []
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        names.append(f"cuda:{index} ({torch.cuda.get_device_name(index)}, {_size(free)} of {_size(total)} free)")
    return names


def _memory() -> str:
    """Free and total memory, and the limit of the control group if there is one (containers)."""
    text, limit = f"{_size(machine.free())} of {_size(machine.total())} free", machine.group_limit()
    return text if limit is None else f"{text}, limited to {_size(limit)}"


def _data() -> list[tuple[str, str]]:
    offline = os.environ.get("EMBTRAIN_OFFLINE", "") not in ("", "0")
    return [("cache", _cache()),
            ("mirror", _mirror()),
            ("offline", "yes: nothing is downloaded" if offline else "no; set by EMBTRAIN_OFFLINE=1")]


def _mirror() -> str:
    from embtrain.data.catalogue.mirror import VARIABLE, problem_line

    try:
        problem = problem_line()
    except EmbtrainError as error:
        problem = str(error)
    return f"NOT usable: {problem}" if problem else os.environ.get(VARIABLE) or f"none; set by {VARIABLE}"


def _cache() -> str:
    from embtrain.data.storage.folders import cache_folder

    try:
        cache = cache_folder()
    except ResourceError as error:
        return f"NOT usable: {error}"
    existing = next(folder for folder in (cache, *cache.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):  # os.access is always true for root
            access = "writable"
    except OSError as error:
        access = f"NOT writable: {error.strerror}"
    return f"{cache} ({access}, {_size(shutil.disk_usage(existing).free)} free); set by EMBTRAIN_CACHE"


def _size(n: int) -> str:
    return f"{n / 2**30:.1f} GiB"

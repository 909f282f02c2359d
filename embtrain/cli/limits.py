"""Limits of the machine that end a command with code 4 and one line.

`check` runs before the numerical libraries are imported and reports limits that they cannot: OpenBLAS and OpenMP end
the process, or send it SIGINT, if they get too few threads or too little address space; oneMKL ends it if the current
folder was deleted. `reason` explains the exceptions that the libraries raise.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from embtrain.common import machine
from embtrain.common.errors import EmbtrainError, ResourceError, os_reason

# Bytes of address space; with less OpenBLAS ends the process, or Python lacks memory for imports. On two cores with
# OMP_NUM_THREADS=1, `list` failed with 1,120 MiB and ended with 0 with 1,150; `fit` of a small text failed with 1,110.
MIN_ADDRESS_SPACE = 1150 << 20
SMALL_STACK = 1 << 18  # bytes of a thread; the default 8 MiB would count against the address space
MEMORY = ("can't allocate memory", "cannot allocate memory", "std::bad_alloc", "failed to map segment",
          "cannot map zero-fill pages")
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EPERM, errno.EROFS, errno.EMFILE, errno.ENFILE,
        errno.EFBIG, errno.ENXIO, errno.ESTALE, errno.ETXTBSY, errno.ENODEV}
THREADS = "no more threads or processes can be started; raise the limit (ulimit -u), or set --threads 1"
OURS = "embtrain"
DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "pyyaml"}  # of modules with another name
TEMPORARY = "no temporary folder is writable; set TMPDIR to a writable folder with free space"


def check() -> None:
    """Raise ResourceError if the libraries would end the process while they are imported."""
    try:
        os.getcwd()
    except OSError:
        raise ResourceError("the current folder no longer exists; change to another (cd)") from None
    import resource

    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= space < MIN_ADDRESS_SPACE:
        raise ResourceError(f"the address space is limited to {space >> 20:,} MiB, and the numerical libraries "
                            f"need more than {MIN_ADDRESS_SPACE >> 20:,}; raise the limit (ulimit -v)")
    n_needed = _threads()
    if (n := machine.startable_threads(n_needed, SMALL_STACK)) < n_needed:
        raise ResourceError(f"{n} of {n_needed} threads can be started; raise the limit of the user or group "
                            "(ulimit -u, pids.max), or set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1")


def _threads() -> int:
    """Number of threads that a run starts in addition to the main one.

    NumPy's and SciPy's OpenBLAS each start theirs on import; then OpenMP and embtrain start one per core each.
    """
    cores = machine.usable_cores()
    requested = next(filter(None, map(os.environ.get, ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"))), "")
    n_blas = min(int(requested), cores) if requested.isdecimal() and int(requested) else cores
    return 2 * (n_blas - 1) + 2 * cores


def reason(error: BaseException) -> str | None:
    """One line if the machine or a missing package caused the error, even if a library raised another; else None."""
    if (path := _deleted_cache_file(error)) is not None:
        return f"{path}: was deleted from the cache while it was in use; run the command again"
    if isinstance(error, ModuleNotFoundError) and (module := (error.name or OURS).partition(".")[0]) != OURS:
        package = DISTRIBUTIONS.get(module, module)
        return f"{package}: the package is not installed; pip install {package}, or install embtrain with pip"
    seen = set[int]()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if (line := _reason(current)) is not None:
            return line
        current = current.__cause__ or current.__context__
    return None


def _deleted_cache_file(error: BaseException) -> Path | None:
    from embtrain.data.storage.folders import cache_folder, deleted_path

    try:
        return deleted_path(error, cache_folder())
    except (OSError, EmbtrainError):                         # there is no cache
        return None


def _reason(error: BaseException) -> str | None:
    text = str(error)
    first = text.splitlines()[0] if text else ""
    if isinstance(error, OSError):
        if text.find("No usable temporary directory") >= 0:
            return TEMPORARY
        if error.errno == errno.EAGAIN:
            return THREADS
        if error.errno in FULL:
            return f"{error.filename or 'this machine'}: {os_reason(error)}"
    if isinstance(error, RuntimeError) and "can't start new thread" in text:
        return THREADS
    # torch has no public class for a CPU allocation that failed.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" \
            or (isinstance(error, OSError) and error.errno == errno.ENOMEM) \
            or any(words in text.lower() for words in MEMORY):
        return f"not enough memory{f': {first}' if first else ''}"
    return None

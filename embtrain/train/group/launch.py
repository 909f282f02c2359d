"""Joins the processes of one run that torchrun starts; a process that was started alone is a group of one.

The processes first agree on a name (meeting.py). gloo connects lazily: with its default, all processes connect to each
other at the start, and wait without a limit for one that has ended. A barrier follows, so that it is missed at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

import embtrain
from embtrain.common import progress
from embtrain.common.errors import EmbtrainError, ReportedElsewhere, ResourceError, Stopped, UsageError
from embtrain.train.group import meeting
from embtrain.train.group.processes import SOLO, GlooGroup, GroupFailed, ProcessGroup

TIMEOUT = "EMBTRAIN_SYNC_SECONDS"  # environment: time limit of an exchange between processes
DEFAULT_SECONDS = 60.0
REQUIRED = ("RANK", "MASTER_ADDR", "MASTER_PORT")
VARIABLES = (*REQUIRED, "WORLD_SIZE", "ROLE_NAME",
             *(f"{unit}_{name}" for unit in ("LOCAL", "GROUP", "ROLE") for name in ("RANK", "WORLD_SIZE")))


def world_size() -> int:
    """Number of processes that the launcher started; 1 without a launcher. UsageError for another value."""
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"WORLD_SIZE: {text}: is not a number of processes; start with torchrun, or unset WORLD_SIZE")
    if int(text) > 1 and (missing := [name for name in REQUIRED if not os.environ.get(name)]):
        raise UsageError(f"WORLD_SIZE: {text}: is set, but not {', '.join(missing)}; start with torchrun, or unset "
                         "WORLD_SIZE")
    return int(text)


def child_environment(threads: int) -> dict[str, str]:
    """The variables of a command that this process starts: the same package, a number of threads and no launcher.

    The command is not one of the processes of the launcher, so it must not wait for the others.
    """
    kept = {name: value for name, value in os.environ.items()
            if name not in VARIABLES and not name.startswith("TORCHELASTIC_")}
    path = filter(None, (str(Path(embtrain.__file__).resolve().parents[1]), kept.get("PYTHONPATH")))
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    return {**kept, **counts, "PYTHONPATH": os.pathsep.join(path)}


def restarts(run_id: str) -> bool:
    """Whether the launcher has restarted this process, or started it for a launch that began with `run_id`."""
    own_id = launch_id()
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0 or (own_id != "" and own_id == run_id)


def launch_id() -> str:
    """The name that all processes of one launch share; '' if the launcher has none."""
    text = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return "" if text == "none" else text


def may_restart() -> bool:
    """Whether the launcher would start the processes again after a failure."""
    return os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") not in ("", "0")


@contextlib.contextmanager
def join() -> Iterator[ProcessGroup]:
    """The group of this process, for one command. Only process 0 prints progress and warnings.

    An error in one process becomes the error of all; process 0 raises it, the others ReportedElsewhere.
    """
    if (size := world_size()) == 1:
        yield SOLO
        return
    group = _connect(size)
    if not group.is_first:
        progress.quiet = True
        logging.getLogger("embtrain").setLevel(logging.ERROR)          # process 0 logs the same warnings
    try:
        yield group
    except EmbtrainError as error:
        if not isinstance(error, GroupFailed):
            group.report(error.code, error.args)
        group.leave()
        if group.is_first or not group.is_reported():
            raise
        raise ReportedElsewhere(error.code) from error
    except Stopped as stopped:
        group.report(stopped.code, [str(stopped)])
        group.leave()
        if group.is_first:
            raise
        raise ReportedElsewhere(stopped.code) from stopped
    group.leave()


def _connect(size: int) -> GlooGroup:
    """Connect to the other processes. ResourceError if one is missing."""
    seconds = _seconds()
    os.environ.setdefault("TORCH_GLOO_LAZY_INIT", "1")
    limit, launcher = timedelta(seconds=seconds), os.getppid()
    try:
        store, rank, _ = next(iter(dist.rendezvous("env://", timeout=limit)))
        store = dist.PrefixStore(meeting.agree_on_name(store, rank, size, seconds), store)
        dist.init_process_group("gloo", store=dist.PrefixStore("gloo", store), rank=rank, world_size=size,
                                timeout=limit)
        dist.barrier()
    except (RuntimeError, ValueError, OSError) as error:
        raise ResourceError(f"MASTER_ADDR: {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}: the {size} "
                            f"processes cannot connect in {seconds:g} seconds: {' '.join(str(error).split())[:200]}; "
                            f"start all with torchrun, or give more time in {TIMEOUT}") from error
    return GlooGroup(rank, size, store, lambda: os.getppid() == launcher)


def _seconds() -> float:
    text = os.environ.get(TIMEOUT) or f"{DEFAULT_SECONDS}"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        raise UsageError(f"{TIMEOUT}: {text}: is not a time limit; give seconds from 1 to 3600")
    return seconds

"""The loop of a benchmark: every round runs embtrain and each rival on the same work, in turn.

A ratio is rival time ÷ our time, of medians over the rounds; because programs alternate, a slow minute of the machine
affects both. Times are wall seconds, and CPU seconds for a machine with other work. All rounds are recorded.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import embtrain
from embtrain.common import terminal
from embtrain.common.errors import UsageError
from embtrain.common.machine import package_version, processor

log = logging.getLogger(__name__)


class Timed(NamedTuple):
    """One timed run of one program."""

    seconds: float             # wall
    cpu_seconds: float         # of this process, all threads
    quality: dict[str, float]  # quality of the result by metric, the same for ours and for a rival


Work = Callable[[], Timed]


@dataclass(frozen=True)
class Group:
    """The same work done by several cases of embtrain and by rivals; each case is compared with every rival."""

    threads: int
    ours: Mapping[str, Work]                       # by case name
    rivals: Mapping[str, Work] = field(default_factory=dict)


def choose(cases: Iterable[str], only: Sequence[str] | None) -> list[str]:
    """Select the cases that match `only`, a full name or a prefix that ends at a dash; all if it is None.

    Raises UsageError with all cases if a name matches none. Called before a text is read.
    """
    cases = list(cases)
    for name in only or []:
        if not any(_matches(case, name) for case in cases):
            raise UsageError(f"--only: there is no case {name!r}; there are: {', '.join(cases)}")
    return [case for case in cases if not only or any(_matches(case, name) for name in only)]


def _matches(case: str, name: str) -> bool:
    return case == name or case.startswith(f"{name}-")


def find_rival(module: str, *packages: str) -> tuple[bool, str]:
    """Whether a rival is installed, and its version for `about`, or how to install it, which a warning repeats.

    packages: names of packages that contain the module; the first is the one to install.
    """
    if importlib.util.find_spec(module) is None:
        log.warning("bench: %s is not installed, and is not timed; pip install %s", module, packages[0])
        return False, f"not installed: pip install {packages[0]}"
    return True, next((version for version in map(package_version, packages) if version[0].isdigit()), "unknown")


def timed(work: Callable[[], Any], wait: Callable[[], object] = lambda: None) -> tuple[float, float, Any]:
    """Wall seconds, CPU seconds and result of one call. `wait` returns when a GPU has done its work."""
    wait()
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    wait()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def children_seconds() -> float:
    """Return the CPU seconds of the processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _print(line: str) -> None:
    terminal.show(line, flush=True)  # so that a file also gets each round as it ends


def run(bench: str, unit: str, groups: Sequence[Group], rounds: int, about: Mapping[str, Any],
        write_line: Callable[[str], None] = _print) -> dict[str, Any]:
    """Run the groups, print each round, and return the summary; docs/reference/formats.md documents its keys."""
    ours: dict[str, list[Timed]] = {}
    rivals: dict[str, dict[str, list[Timed]]] = {}
    for number in range(1, rounds + 1):
        for group in groups:
            theirs = {name: work() for name, work in group.rivals.items()}
            for name, timing in theirs.items():
                write_line(f"round {number} · {name} · {_seconds(group, timing)}")
            for case, work in group.ours.items():
                ours.setdefault(case, []).append(timing := work())
                ratios = "".join(f" · {r.seconds / timing.seconds:.2f}× {name}" for name, r in theirs.items())
                write_line(f"round {number} · {case} · {_seconds(group, timing)}{ratios}")
                for name, r in theirs.items():
                    rivals.setdefault(name, {}).setdefault(case, []).append(r)
    by_rival = {name: {case: _ratio(times, ours[case], "seconds") for case, times in of_case.items()}
                for name, of_case in rivals.items()}
    by_cpu = {name: {case: _ratio(times, ours[case], "cpu_seconds") for case, times in of_case.items()}
              for name, of_case in rivals.items()}
    first = next(iter(rivals), "")
    return {
        "bench": bench, "unit": unit, "threads": {case: g.threads for g in groups for case in g.ours},
        "rounds": rounds, "ours": _rows(ours, "seconds"), "ours_cpu": _rows(ours, "cpu_seconds"),
        "rivals": {name: _rows(r, "seconds") for name, r in rivals.items()},
        "rivals_cpu": {name: _rows(r, "cpu_seconds") for name, r in rivals.items()},
        "ratio_rival": first or None, "ratio": by_rival.get(first, {}), "ratio_cpu": by_cpu.get(first, {}),
        "ratio_others": {name: of_case for name, of_case in by_rival.items() if name != first},
        "quality": {case: {"ours": _quality(times)} | {n: _quality(r[case]) for n, r in rivals.items() if case in r}
                    for case, times in ours.items()},
        "about": dict(about) | machine(),
    }


def _seconds(group: Group, timing: Timed) -> str:
    n, cores = group.threads, os.cpu_count() or 1
    shared = f" on {cores} core{'s' * (cores > 1)}" if n > cores else ""       # which they take turns on
    return f"{n} thread{'s' * (n > 1)}{shared} · {timing.seconds:.3f} s, {timing.cpu_seconds:.3f} CPU-s"


def _ratio(rival: Sequence[Timed], ours: Sequence[Timed], field: str) -> float:
    """Median over the rounds of a rival ÷ median of ours."""
    rival_median, our_median = (statistics.median(getattr(t, field) for t in times) for times in (rival, ours))
    return digits(rival_median / our_median)


def digits(x: float) -> float:
    """Round x to four significant digits."""
    return float(f"{x:.4g}")


def _rows(of_case: Mapping[str, Sequence[Timed]], field: str) -> dict[str, list[float]]:
    return {case: [round(getattr(t, field), 4) for t in times] for case, times in of_case.items()}


def _quality(times: Sequence[Timed]) -> dict[str, float]:
    """The mean over the rounds of each metric that all of them have."""
    return {key: round(statistics.fmean(t.quality[key] for t in times), 4) for key in times[0].quality
            if all(key in t.quality for t in times)}


def machine() -> dict[str, Any]:
    """The machine and versions of the measurement."""
    return {"embtrain": embtrain.__version__, "python": platform.python_version(), "machine": platform.machine(),
            "processor": processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}


def describe(device: str) -> str:
    """The name of the GPU, for device cuda; else cpu."""
    import torch

    return torch.cuda.get_device_name(device) if device == "cuda" else device


def last_line(summary: Mapping[str, Any]) -> str:
    """The summary as one line of JSON."""
    return json.dumps(summary, ensure_ascii=False, allow_nan=False)

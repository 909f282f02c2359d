"""The machine: processor, free memory, cgroup limits and the peak of a computation; waiting of threads."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import platform
import re
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from embtrain.common import machine

GIB = 1 << 30


MOUNTS = {True: "41 31 0:38 {shown} {mount} rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate",
          False: "35 31 0:32 {shown} {mount} rw,relatime - cgroup cgroup rw,memory"}
ALL_OF_IT = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
Group = tuple[str, int, int]  # limit, bytes in use, bytes of files that can be freed


def system(root: Path, monkeypatch: pytest.MonkeyPatch, path: str, groups: dict[str, Group], v2: bool = True,
           shown: str = "/", mount: str = "/sys/fs/cgroup") -> None:
    """Simulate a system whose process is in the group `path`; groups: files below the mount."""
    (root / "proc" / "self").mkdir(parents=True, exist_ok=True)
    lines = [f"0::{path}"] if v2 else ["9:name=systemd:/", f"4:cpu,memory:{path}", "0::/"]
    (root / "proc" / "self" / "cgroup").write_text("".join(f"{line}\n" for line in lines))
    mounts = ["22 1 253:0 / / rw,relatime - ext4 /dev/vda rw", "33 31 0:30 / /cpu rw,relatime - cgroup cgroup rw,cpu",
              MOUNTS[v2].format(shown=shown, mount=mount.replace(" ", "\\040"))]
    (root / "proc" / "self" / "mountinfo").write_text("".join(f"{line}\n" for line in mounts))
    names = ("max", "current", "inactive_file") if v2 else ("limit_in_bytes", "usage_in_bytes", "total_inactive_file")
    for name, (limit, used, files) in groups.items():
        folder = root / mount.lstrip("/") / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in {names[0]: limit, names[1]: used, "stat": f"anon 5\n{names[2]} {files}"}.items():
            (folder / f"memory.{file}").write_text(f"{text}\n")
    monkeypatch.setattr(machine, "ROOT", root)


def test_a_package_that_is_missing_has_no_version() -> None:
    assert machine.package_version("numpy") == np.__version__
    assert machine.package_version("no-package-of-this-name") == "not installed"


def test_the_model_of_the_processor_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    assert machine.processor() == platform.processor()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU: 2 GHz\nmodel name\t: B\n")
    assert machine.processor() == "Some CPU: 2 GHz"


def test_a_group_s_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system(tmp_path, monkeypatch, "/", {"": ("1000000", 700_000, 200_000)})  # 200,000 of the file cache can be freed
    assert machine.free() == 500_000 and machine.total() == 1_000_000
    system(tmp_path, monkeypatch, "/", {"": ("1000000", 1_100_000, 0)})
    assert machine.free() == 0


@pytest.mark.parametrize("v2", [True, False])
def test_the_limit_of_an_ancestor_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, v2: bool) -> None:
    none = "max" if v2 else "9223372036854771712"
    groups = {"slurm/job_7/step_0": (none, 300_000, 0), "slurm/job_7": ("1200000", 500_000, 100_000),
              "slurm": ("900000000", 899_900_000, 0), "": (none, 5 * GIB, 0), "slurm/job_8": ("5", 5, 0)}
    system(tmp_path, monkeypatch, "/slurm/job_7/step_0", groups, v2)
    assert machine.group_limit() == 1_200_000 and machine.total() == 1_200_000
    assert machine.free() == 100_000                         # remaining memory of `slurm`; that of job_7 is 800,000


@pytest.mark.parametrize(("path", "shown"), [("/docker/abc", "/docker/abc"), ("/docker/abc", "/elsewhere"),
                                             ("/../sibling", "/"), ("/docker/abc/deeper", "/docker/abc")])
@pytest.mark.parametrize("v2", [True, False])
def test_the_mount_of_a_container_shows_a_part_of_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str,
                                                           shown: str, v2: bool) -> None:
    system(tmp_path, monkeypatch, path, {"": ("2000000", 500_000, 0)}, v2, shown, mount="/my groups/memory")
    assert machine.group_limit() == 2_000_000 and machine.free() == 1_500_000


def test_no_limit_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for v2, text in ((True, "max"), (False, "9223372036854771712")):
        system(tmp_path / str(v2), monkeypatch, "/", {"": (text, 10**15, 0)}, v2)
        assert machine.group_limit() is None and machine.total() == ALL_OF_IT
        assert 0 < machine.free() <= ALL_OF_IT
    monkeypatch.setattr(machine, "ROOT", tmp_path / "none")
    assert machine.group_limit() is None and machine.total() == ALL_OF_IT


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="linux: the peak counter cannot be reset")
def test_the_peak_of_a_computation_counts_freed_memory() -> None:
    def work() -> float:
        return float(np.ones(GIB // 32).sum())                            # 256 MiB, freed at once

    before = machine.process_memory("VmHWM")
    value, peak = machine.measure_peak(work)
    assert before is not None and value == GIB // 32 and 0.95 < peak / (GIB // 4) < 1.1
    assert machine.measure_peak(lambda: None)[1] < 8 << 20


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="linux: the peak counter cannot be reset")
def test_memory_reused_from_the_allocator_is_counted() -> None:
    def work() -> list[np.ndarray]:
        return [np.ones(64 << 7) for _ in range(1024)]                    # 64 KiB each: no separate mapping

    kept = work()
    last = np.ones(64 << 7)                                               # keeps the heap from shrinking
    del kept
    assert 0.9 < machine.measure_peak(work)[1] / (64 << 20) < 1.3 and last.all()


def test_without_a_source_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_entry", lambda path, name: None)
    monkeypatch.setattr(machine, "ROOT", Path("/none"))
    assert (
        machine.process_memory("VmRSS") is None and machine.free() == GIB and machine.measure_peak(lambda: 3) == (3, 0)
    )


def test_pages_of_a_mapped_file_are_returned_and_read_again(tmp_path: Path) -> None:
    whole = np.arange(8 << 20, dtype=np.int32)                            # 32 MiB
    np.save(tmp_path / "ids.npy", whole)
    mapped = np.asarray(np.load(tmp_path / "ids.npy", "r"))[1000:]
    assert np.array_equal(mapped, whole[1000:])
    before = machine.process_memory("RssFile")
    machine.release_pages(mapped)
    after = machine.process_memory("RssFile")
    assert before is None or after is None or before - after > 30 << 20
    assert np.array_equal(mapped, whole[1000:])
    for array in (whole, np.load(tmp_path / "ids.npy", "c")):             # in memory; with changes that no file has
        array[:] = 7
        machine.release_pages(array)
        assert (array == 7).all()


PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(not PAGES.exists() or "[never]" in PAGES.read_text(), reason="linux: there are no huge pages here")
@pytest.mark.parametrize("wish", [None, "0"])
def test_large_tensors_use_huge_pages_unless_disabled(wish: str | None) -> None:
    if wish == "0" and "[always]" in PAGES.read_text():
        pytest.skip("linux: huge pages for everybody")
    queries = ("import embtrain, re, torch; from pathlib import Path; x = torch.ones(1 << 24); "
            "print(re.search(r'AnonHugePages:\\s+(\\d+)', Path('/proc/self/smaps_rollup').read_text())[1])")
    env = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    env |= {} if wish is None else {"THP_MEM_ALLOC_ENABLE": wish}
    done = subprocess.run([sys.executable, "-c", queries], env=env, text=True, capture_output=True, check=True)
    share = int(done.stdout) * 1024 / (64 << 20)
    assert share > 0.9 if wish is None else share < 0.2


@pytest.mark.skipif(sys.platform != "linux", reason="linux: torch's threads are of GNU's OpenMP there")
@pytest.mark.parametrize(("theirs", "looks"), [({}, "10000"), ({"GOMP_SPINCOUNT": "5"}, "5"),
                                               ({"OMP_WAIT_POLICY": "active"}, "30000000000")])
def test_waiting_threads_sleep_soon_unless_configured_otherwise(theirs: dict[str, str], looks: str) -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.origin is not None
    library = [str(path) for path in Path(torch.origin).parent.glob("lib/libgomp*")] if theirs else []
    code = f"import embtrain, ctypes; ctypes.CDLL({library[0]!r})" if library else "import embtrain, torch"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True,
                          env=env | theirs | {"OMP_DISPLAY_ENV": "verbose"})
    assert set(re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)) == {looks}


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("is_enabled", [True, False])
def test_imports_pause_the_collector_and_freeze_what_exists(is_enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_has_frozen", threading.Event())
    before, had_frozen = gc.isenabled(), gc.get_freeze_count() > 0   # the tests freeze what their collection creates
    try:
        gc.unfreeze()
        (gc.enable if is_enabled else gc.disable)()
        with machine.unfrozen_at_end():
            with pytest.raises(KeyError), machine.paused_collector():  # restored after an error too
                assert not gc.isenabled()
                cycle = weakref.ref(_Cycle())
                raise KeyError
            assert gc.isenabled() == is_enabled
            gc.collect()
            assert cycle() is not None                                  # frozen: never visited
        gc.collect()
        assert cycle() is None and gc.get_freeze_count() == 0
    finally:
        (gc.enable if before else gc.disable)()
        if had_frozen:
            gc.freeze()


@pytest.mark.parametrize("inside", [False, True])
def test_objects_that_the_caller_froze_stay_frozen(inside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """inside: by `paused_collector`, or by its own program."""
    monkeypatch.setattr(machine, "_has_frozen", threading.Event())
    gc.freeze()
    try:
        with machine.paused_collector() if inside else contextlib.nullcontext():
            pass
        with machine.unfrozen_at_end(), machine.paused_collector():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()

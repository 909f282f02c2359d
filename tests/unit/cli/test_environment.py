"""The command in a poor environment: streams, folders, limits and signals. tests/slow/trust has more moments."""

from __future__ import annotations

import errno
import os
import pwd
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from helpers.looped import looped

from embtrain import cli, experiment
from embtrain.cli import interrupt, limits
from embtrain.common import files, machine
from embtrain.common.errors import DataError, ResourceError, Stopped
from embtrain.data.storage import cache, folders
from embtrain.data.storage.cache import Encoded
from embtrain.experiment.run import components
from embtrain.experiment.tasks import base as tasks

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
NO_DATA = "embtrain: error: there are no data named 'nonsense'"
NO_TEMPORARY = f"embtrain: error: {limits.TEMPORARY}\n"


def shell(command: str, cwd: Path = ROOT, before: Callable[[], None] | None = None,
          **env: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in which `embtrain` starts a separate process.

    Paths that torch added to the environment of this process are removed, because a fresh process has none.
    """
    inherited = {name: value for name, value in os.environ.items()
                 if not name.startswith(("TORCHINDUCTOR_", "TRITON_"))}
    command = f'embtrain() {{ "{sys.executable}" -m embtrain "$@"; }}; {command}'
    return subprocess.run(["sh", "-c", command], cwd=cwd, capture_output=True, text=True, check=False,
                          preexec_fn=before, env={**inherited, "PYTHONPATH": str(ROOT), **env})


def stdout_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["embtrain", *args])
    return cli.run(), *capsys.readouterr()


# --- standard streams -----------------------------------------------------------------------------------------------

@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="linux: /dev/full")
@pytest.mark.parametrize(("command", "unbuffered"), [("data list > /dev/full", ""), ("data list > /dev/full", "1"),
                                                     ("--help > /dev/full", "")])
def test_output_lost_to_a_full_disk_gives_one_line_and_code_4(command: str, unbuffered: str) -> None:
    done = shell(f"embtrain {command}", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (
        4, "embtrain: error: standard output: No space left on device: the output is lost, but files that were written "
           "stay; redirect it elsewhere\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="linux: /dev/full")
def test_a_refusal_goes_to_standard_output_if_standard_error_is_closed() -> None:
    refused = "embtrain data verify nonsense"
    for stderr in ("2> /dev/full", "2>&-"):
        done = shell(f"{refused} {stderr}")
        assert (done.returncode, done.stderr) == (2, "") and done.stdout.startswith(NO_DATA), stderr
        assert done.stdout.count("\n") == 1
    assert shell(f"{refused} > /dev/full 2> /dev/full").returncode == 2
    assert shell(f"{refused} >&- 2>&-").returncode == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="linux: /dev/full")
def test_lost_warnings_and_progress_do_not_end_a_command() -> None:
    work = ("import sys, logging; sys.argv = ['embtrain', 'data', 'list']\n"
            "from embtrain.data.catalogue import fetch\nlisted = fetch.list_data\n"
            "def loud():\n    print('a' * 100_000, file=sys.stderr, flush=True)\n"
            "    logging.getLogger('embtrain').warning('b')\n    return listed()\n"
            "fetch.list_data = loud\nfrom embtrain.cli import main; main()")
    done = shell(f'"{sys.executable}" -c "$WORK" 2> /dev/full', WORK=work)
    assert done.returncode == 0 and "wordsim353" in done.stdout


def test_an_unwritable_output_and_a_file_size_limit_are_resource_errors(tmp_path: Path) -> None:
    done = shell("embtrain --version 1< /dev/null")
    assert done.returncode == 4 and done.stderr.startswith("embtrain: error: standard output: Bad file descriptor: ")
    done = shell(f"ulimit -f 1; embtrain data list > {tmp_path / 'list'}", PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 4 and done.stderr.startswith("embtrain: error: standard output: File too large: ")


# --- home, cache and temporary folders ------------------------------------------------------------------------------

@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a user without a name and a home folder; return the temporary folder."""
    def unknown(_: int) -> NoReturn:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid)
    for name in ("HOME", "EMBTRAIN_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folders._temporary.cache_clear()
    return tmp_path / f"embtrain-{tmp_path.stat().st_uid}"


@pytest.mark.parametrize("command", [("doctor",), ("data", "list")])
def test_without_a_home_the_cache_is_in_the_temporary_folder(
        stranger: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        caplog: pytest.LogCaptureFixture, command: tuple[str, ...]) -> None:
    code, out, _ = stdout_of(monkeypatch, capsys, *command)
    assert code == 0 and (command != ("doctor",) or f"cache         {stranger} (writable" in out)
    assert [str(stranger) in line for line in caplog.messages] == [True]             # once
    assert stranger.stat().st_mode & 0o777 == 0o700


def test_charts_are_silent_about_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = str(tmp_path / "file" / "x")
    done = shell(f'"{sys.executable}" -c "import embtrain.report.charts.svg"', MPLCONFIGDIR=place)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_cache_writable_by_another_user_is_refused(stranger: Path, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    stranger.mkdir()
    stranger.chmod(0o777)
    with pytest.raises(ResourceError, match="is writable by other users or not a folder; set EMBTRAIN_CACHE"):
        folders.cache_folder()
    stranger.rmdir()
    stranger.symlink_to(tmp_path)
    with pytest.raises(ResourceError, match="set EMBTRAIN_CACHE"):
        folders.cache_folder()
    stranger.unlink()
    stranger.mkdir(0o700)
    monkeypatch.setattr(os, "getuid", lambda: 1 + tmp_path.stat().st_uid)
    with pytest.raises(ResourceError, match="is writable by other users"):
        folders._temporary(stranger)


@pytest.mark.parametrize("key", ["EMBTRAIN_CACHE", "EMBTRAIN_DATA_MIRROR"])
@pytest.mark.parametrize("command", [("doctor",), ("data", "list")])
def test_a_path_of_an_unknown_user_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch,
                                                      capsys: pytest.CaptureFixture[str], key: str,
                                                      command: tuple[str, ...]) -> None:
    monkeypatch.setenv(key, "~nosuchuser/x")
    code, _, err = stdout_of(monkeypatch, capsys, *command)
    if (key, command) != ("EMBTRAIN_DATA_MIRROR", ("doctor",)):                      # printed unchanged
        assert (code, err) == (2, f"embtrain: error: {key}: ~nosuchuser/x: its home folder is unknown; give the "
                                  "absolute path\n")


@pytest.mark.parametrize("below", ["", "/a/b"])
def test_a_file_in_place_of_the_cache_is_named_with_its_key(monkeypatch: pytest.MonkeyPatch,
                                                            capsys: pytest.CaptureFixture[str], tmp_path: Path,
                                                            below: str) -> None:
    (file := tmp_path / "file").touch()
    monkeypatch.setenv("EMBTRAIN_CACHE", f"{file}{below}")
    line = f"EMBTRAIN_CACHE: {file}{below}: {f'{file} ' if below else ''}is not a folder; set EMBTRAIN_CACHE to"
    for command in (("data", "list"), ("data", "fetch", "wordsim353"),
                    ("fit", "--negatives", "sgns", "--corpus", str(ROOT / "README.md"))):
        code, _, err = stdout_of(monkeypatch, capsys, *command)
        assert (code, err.splitlines()[-1]) == (4, f"embtrain: error: {line} a folder, which need not exist")
    code, out, _ = stdout_of(monkeypatch, capsys, "doctor")
    assert code == 0 and f"cache         NOT usable: {line}" in out


def test_a_mirror_that_is_no_folder_is_reported_by_doctor(monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (file := tmp_path / "file").touch()
    for mirror, prefix in ((str(file), "NOT usable: EMBTRAIN_DATA_MIRROR: "), (str(tmp_path), ""), ("http://x", "")):
        monkeypatch.setenv("EMBTRAIN_DATA_MIRROR", mirror)
        _, out, _ = stdout_of(monkeypatch, capsys, "doctor")
        assert f"mirror        {prefix}{mirror}" in out


def test_an_unwritable_cache_is_named_with_its_key(monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", "/proc/self/embtrain")      # a path where even root cannot write
    code, _, err = stdout_of(monkeypatch, capsys, "fit", "--negatives", "sgns", "--corpus", str(ROOT / "README.md"),
                             "--out", str(tmp_path / "run"))
    assert code == 4 and err.splitlines()[-1].startswith("embtrain: error: /proc/self/embtrain/text/")
    assert err.endswith("; set EMBTRAIN_CACHE to a writable folder with free space\n")
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    for filename, kind in ((tmp_path / "cache" / "x", ResourceError), (tmp_path / "cached", OSError)):
        error = OSError(30, "Read-only file system", str(filename))
        with pytest.raises(kind) as refused:
            folders.read_into_cache(lambda error=error: (_ for _ in ()).throw(error))
        assert ("set EMBTRAIN_CACHE" in str(refused.value)) == (kind is ResourceError)

    def write() -> None:
        with files.write_atomically(tmp_path / "cache" / "x"):
            raise OSError(30, "Read-only file system")
    with pytest.raises(ResourceError, match=r"x: cannot be written: Read-only file system; set EMBTRAIN_CACHE to a"):
        folders.read_into_cache(write)


def test_no_temporary_folder_is_one_line_and_code_4(tmp_path: Path) -> None:
    """Root can write everywhere, so the process itself refuses to create files in any temporary folder."""
    (tmp_path / "sitecustomize.py").write_text(
        "import errno, os, tempfile\nopened = os.open\ndef refuse(path, *args, **more):\n"
        "    if str(path).startswith(tuple(tempfile._candidate_tempdir_list())) and args[0] & os.O_CREAT:\n"
        "        raise OSError(errno.EROFS, 'Read-only file system', path)\n"
        "    return opened(path, *args, **more)\nos.open = tempfile._os.open = refuse\n")
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "TMPDIR": "/nonexistent", "TMP": "", "TEMP": ""}
    (tmp_path / "text.txt").write_text("a b c d e f g h\n" * 50)
    done = shell(f"embtrain fit --dry-run --negatives sgns --corpus {tmp_path}/text.txt --set text.min_count=1", **env)
    assert (done.returncode, done.stdout) == (4, "") and done.stderr.endswith(f"nothing is held out\n{NO_TEMPORARY}")
    fault = shell(f'"{sys.executable}" -c "$WORK"', **env, WORK=(
        "import sys; sys.argv = ['embtrain', 'data', 'list']\nfrom embtrain.data.catalogue import fetch\n"
        "fetch.list_data = {}.popitem\nfrom embtrain.cli import entry_point\n"
        "entry_point.Path.cwd = lambda: entry_point.Path('/proc/none')\n"
        "entry_point.main()"))                               # an internal error, and no folder for its report
    assert fault.returncode == 70 and fault.stderr.count("\n") == 1
    assert "please report this: KeyError: 'popitem(): dictionary is empty'" in fault.stderr


def test_a_deleted_current_folder_gives_one_line_and_code_4(tmp_path: Path) -> None:
    done = shell("mkdir gone; cd gone; rmdir ../gone; embtrain list; code=$?; embtrain --help > /dev/null; exit $code",
                 tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        4, "embtrain: error: the current folder no longer exists; change to another (cd)")


def test_a_deleted_cache_is_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "cache" / "text" / "novel"
    offsets, counts = np.array([0, 3]), np.ones(3, np.int64)
    text = Encoded(np.arange(3, dtype=np.int32), offsets, offsets, counts, list("abc"), {})

    def builds(deletions: int, at: str) -> Encoded:
        left = [True] * deletions

        def lose(moment: str) -> None:
            if moment == at and left and left.pop():
                shutil.rmtree(tmp_path / "cache")

        def build(out: cache.AppendableArray) -> Encoded:
            out.append(text.ids)
            lose("build")
            return text

        with pytest.MonkeyPatch.context() as patch:
            for name, work in (("_write_manifest", cache._write_manifest), ("_digest", cache._digest),
                               ("_open", cache._open)):
                patch.setattr(cache, name, lambda *args, work=work, name=name, **more:
                              (lose(name), work(*args, **more))[1])
            return cache.load_or_build(folder, "key", build)

    for at in ("build", "_write_manifest", "_digest", "_open"):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        caplog.clear()
        assert builds(2, at).ids.tolist() == [0, 1, 2], at
        assert caplog.messages == [f"{folder}: was deleted while it was in use; it is rebuilt"] * 2, at
        shutil.rmtree(tmp_path / "cache")
        with pytest.raises(ResourceError, match=r"No such file|: was deleted 3 times while it was in use; do not"):
            builds(3, at)


def test_a_corpus_lost_from_the_cache_is_read_again_and_other_files_are_not(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    settings = experiment.resolve("sgns", corpus=str(tmp_path))
    reads: list[str] = []

    def read(_: Any) -> str:
        reads.append("")
        if len(reads) < 3:
            raise DataError("cannot be read") from FileNotFoundError(2, "No such file", str(tmp_path / missing))
        return "read"

    monkeypatch.setattr(tasks, "find", lambda _: SimpleNamespace(read=read))
    missing = "cache/members/a/text.txt"
    assert tasks.read(settings) == "read"
    reads.clear()
    missing = "corpus.txt"
    with pytest.raises(DataError):
        tasks.read(settings)
    assert len(reads) == 1
    lost = FileNotFoundError(2, "No such file", str(tmp_path / "cache" / "files" / "gold.txt"))
    assert str(limits.reason(lost)).startswith(f"{lost.filename}: was deleted from the cache while it was in use; run")


# --- limits ---------------------------------------------------------------------------------------------------------

def test_too_little_address_space_is_detected_before_a_library_ends_the_process() -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))

    done = shell("embtrain list", before=limited)
    assert (done.returncode, done.stderr) == (
        4, "embtrain: error: the address space is limited to 200 MiB, and the numerical libraries need more than "
           "1,150; raise the limit (ulimit -v)\n")


def test_too_few_threads_are_detected_before_a_library_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_threads", lambda: 4)
    limits.check()
    started: list[Any] = []

    def start(thread: threading.Thread) -> None:
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(threading.Thread, "join", lambda thread: None)
    with pytest.raises(ResourceError, match=r"^3 of 4 threads can be started; raise the limit .*, or set OMP_NUM"):
        limits.check()
    monkeypatch.setattr(limits, "_threads", lambda: 3)
    started.clear()
    limits.check()


@pytest.mark.parametrize(("env", "threads"), [
    ({}, 10), ({"OMP_NUM_THREADS": "2"}, 8), ({"OMP_NUM_THREADS": "900"}, 10), ({"OMP_NUM_THREADS": "1"}, 6),
    ({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "2"}, 8), ({"OMP_NUM_THREADS": "2,1"}, 10)])
def test_the_threads_of_a_run_are_counted(monkeypatch: pytest.MonkeyPatch, env: dict[str, str], threads: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, env.get(name, ""))
    assert limits._threads() == threads


def test_more_threads_than_the_system_starts_end_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenMP would end the process. As many threads as cores are not tried: `limits.check` has tried them."""
    tried = list[int]()
    monkeypatch.setattr(machine, "usable_cores", lambda: 2)
    monkeypatch.setattr(machine, "startable_threads", lambda n: tried.append(n) or n - 1)
    monkeypatch.setattr(torch, "set_num_threads", tried.append)
    with pytest.raises(ResourceError, match=r"^train\.threads: 1,000: the system cannot start so many .*the 2 cores"):
        components.use_threads(1000)
    assert tried == [2000]
    assert components.use_threads(0) == components.use_threads(2) == 2 and tried == [2000, 2, 2]
    monkeypatch.setattr(machine, "startable_threads", lambda n: n)
    assert components.use_threads(3) == 3


def chained(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@looped("error, line", [
    (MemoryError(), "not enough memory"),
    (ImportError("libtorch_cpu.so: failed to map segment from shared object"),
     "not enough memory: libtorch_cpu.so: failed to map segment from shared object"),
    (RuntimeError("std::bad_alloc"), "not enough memory: std::bad_alloc"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory: [Errno 12] Cannot allocate memory"),
    (RuntimeError("can't start new thread"), limits.THREADS),
    (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), limits.THREADS),
    (FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"), limits.TEMPORARY),
    (chained(ImportError("torch"), FileNotFoundError(2, "No usable temporary directory found in []")),
     limits.TEMPORARY),
    (OSError(errno.EFBIG, "File too large", "runs/x"), "runs/x: File too large"),
    (OSError(errno.EROFS, "Read-only file system", "runs"),
     "runs: Read-only file system; choose a path on a writable file system"),
    (OSError(errno.EPERM, "Operation not permitted", "runs"),
     "runs: Operation not permitted; change the permissions, or choose another path"),
    (ModuleNotFoundError("No module named 'gensim'", name="gensim"),
     "gensim: the package is not installed; pip install gensim, or install embtrain with pip"),
    (ModuleNotFoundError("No module named 'sklearn'", name="sklearn.cluster"),
     "scikit-learn: the package is not installed; pip install scikit-learn, or install embtrain with pip"),
    (ModuleNotFoundError("No module named 'embtrain.x'", name="embtrain.x"), None),
    (chained(KeyError("inner"), ModuleNotFoundError("No module named 'faiss'", name="faiss")), None),
    (KeyError("inner"), None), (FileNotFoundError(2, "No such file or directory", "x"), None),
])
def test_errors_caused_by_the_machine_are_explained(error: BaseException, line: str | None) -> None:
    assert limits.reason(error) == line


@pytest.mark.parametrize(("code", "error", "is_shown"), [(4, "ImportError", False), (0, "MemoryError", False),
                                                          (0, "ImportError", True), (2, "ImportError", True)])
def test_exit_callbacks_without_memory_print_nothing(code: int, error: str, is_shown: bool) -> None:
    """A library's callback fails at exit, after the last line of the command."""
    program = (f"import atexit, sys\ndef fail(): raise {error}\natexit.register(fail)\n"
               f"from embtrain.cli import entry_point, main\nentry_point.run = lambda: {code}\nmain()")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, is_shown), done.stderr
    assert is_shown or done.stderr == ""


# --- signals before and after the work ------------------------------------------------------------------------------

def in_fresh(code: str, number: int) -> subprocess.CompletedProcess[str]:
    """A process that sends itself a signal."""
    code = f"import os, sys\ndef ctrl_c(*_): os.kill(os.getpid(), {number})\n{code}"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


SENDS = "sys.meta_path.insert(0, type('Finder', (), {'find_spec': lambda self, name, *_: ctrl_c() if name == NAME " \
        "else None})())\n"


@pytest.mark.parametrize(("during", "message"), [
    ("NAME = 'typer'\n" + SENDS, ""),                                                # the command line is imported
    ("NAME = 'torch'\n" + SENDS, "embtrain: stopped by signal {}\n"),                # a command imports what it runs
    ("import atexit; atexit.register(ctrl_c)\n", ""),                                # the output is printed
    ("import embtrain.cli.entry_point as end; run = end.run; end.run = lambda: (run(), ctrl_c())[0]\n",
     "embtrain: stopped by signal {}\n"),
    ("class Deleted:\n    def __del__(self): ctrl_c()\nfrom embtrain.data.catalogue import fetch\n"
     "def deletes(): Deleted(); return []\nfetch.list_data = deletes\n", "embtrain: stopped by signal {}\n")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_any_moment_gives_at_most_one_line_and_its_code(during: str, message: str, number: int) -> None:
    command = ["list", "--combinations"] if "torch" in during else ["data", "list"]
    done = in_fresh(f"{during}sys.argv = ['embtrain', *{command}]\nfrom embtrain.cli import main; main()", number)
    assert (done.returncode, done.stderr) == (128 + number, message.format(int(number)))


def test_a_second_signal_ends_the_process_but_a_repeated_first_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    handler = interrupt._StopHandler()
    with pytest.raises(Stopped):
        handler(15, None)
    handler(15, None)                                        # `timeout` signals the process and its group
    assert left == []
    assert handler.stopped_at is not None
    handler.stopped_at -= 1
    handler(1, None)                                         # of a closed terminal and of its shell
    assert left == []
    handler(2, None)
    assert left == [130]

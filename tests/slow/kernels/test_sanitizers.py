"""Runs the kernel tests and the corpus of damaged files on a core with sanitizers.

The core is built with address and undefined-behaviour sanitizers in a copy of the checkout. Python itself is not: the
libraries of the sanitizers are preloaded, and leak detection is off.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.hostile_files import KINDS
from helpers.promises import tell

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
UNIT = ROOT / "tests" / "unit"
TESTS = sorted(path.relative_to(UNIT).as_posix() for path in UNIT.rglob("test_kernel_*.py"))
COPIED = ("embtrain", "tests", "configs", "corpora", "evals")


def compiler() -> list[str]:
    named = shlex.split(os.environ.get("CXX", ""))
    command = named or [path for name in ("c++", "g++") if (path := shutil.which(name))][:1]
    assert command, "the sanitizers need a C++ compiler on the PATH"
    return command


def library(name: str) -> str:
    """Path of a library of the compiler, which prints the bare name if it has none."""
    printed = subprocess.run([*compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = Path(printed.stdout.strip())
    assert path.is_absolute(), f"the compiler has no {name}"
    return str(path.resolve())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with the sanitized core."""
    copy = tmp_path_factory.mktemp("sanitized")
    for name in COPIED:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("build_core.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy / name)
    built = subprocess.run([sys.executable, "build_core.py", "--sanitize"], cwd=copy, capture_output=True, text=True,
                           timeout=600, check=False)
    assert built.returncode == 0, built.stderr
    assert (copy / "embtrain" / "kernels" / "_core_san.so").exists()
    return copy


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "EMBTRAIN_CORE": "require", "EMBTRAIN_CORE_LEVEL": "san", "PYTHONPATH": str(checkout),
               "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}", "PYTHONMALLOC": "malloc",
               "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    return subprocess.run([sys.executable, *arguments], cwd=checkout, env=environ, capture_output=True, text=True,
                          timeout=1800, check=False)


def test_there_are_kernel_tests() -> None:
    assert "kernels/test_kernel_skipgram.py" in TESTS


@pytest.mark.parametrize("name", TESTS)
def test_a_kernel_under_the_sanitizers(name: str, checkout: Path) -> None:
    ended = run(checkout, "-m", "pytest", "-q", "-x", "-s", "-p", "no:cacheprovider", f"tests/unit/{name}")
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0 and "runtime error" not in output and "AddressSanitizer" not in output, output[-6000:]


# All readers of files except those of settings and runs, which are pure Python and train.
NOT_READ = ("settings", "strategy", "checkpoint", "resumed", "exported", "run-files", "joined", "order-run")
READ = [kind.name for kind in KINDS if kind.name not in NOT_READ and not kind.name.startswith("values-")]
CAMPAIGN = """
import sys
from pathlib import Path
import torch
from helpers.hostile import campaign
from helpers.hostile_files import KINDS
torch.set_num_threads(1)
kind = next(kind for kind in KINDS if kind.name == sys.argv[1])
tally = campaign(kind, range(int(sys.argv[3])), Path(sys.argv[2]))
print(tally.row(kind.name), *tally.faults, sep="\\n")
sys.exit(bool(tally.faults))
"""
INPUTS = 25
TEXTS = 3000
READ_TEXTS = """
import sys
from helpers.reference_reader import agree, damaged
for data in damaged(int(sys.argv[1])):
    agree(data)
"""
READ_SO_FAR: list[str] = []


def test_damaged_text_under_the_sanitizers(checkout: Path) -> None:
    """Damaged text through the compiled reader in all modes, compared with its reference."""
    ended = run(checkout, "-c", "import sys; sys.path[:0] = ['tests']\n" + READ_TEXTS, str(TEXTS))
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0 and "runtime error" not in output and "AddressSanitizer" not in output, output[-6000:]
    READ_SO_FAR.append("bare text")


@pytest.mark.parametrize("kind", READ)
def test_damaged_files_under_the_sanitizers(kind: str, checkout: Path, tmp_path: Path,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    """The first inputs of tests/slow/trust/test_fuzz.py."""
    ended = run(checkout, "-c", "import sys; sys.path[:0] = ['tests']\n" + CAMPAIGN, kind, str(tmp_path), str(INPUTS))
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0 and "runtime error" not in output and "AddressSanitizer" not in output, output[-6000:]
    READ_SO_FAR.append(kind)
    if len(READ_SO_FAR) == 1 + len(READ):
        tell("sanitizers", f"{len(READ) * INPUTS:,} damaged files of {len(READ)} kinds, {TEXTS:,} damaged texts "
             f"straight into the compiled reader, {len(TESTS)} files of kernel tests: no sanitizer reported an error.",
             capsys)


def test_the_sanitizers_detect_a_read_past_the_end(checkout: Path) -> None:
    """Without this test, a build without sanitizers would pass."""
    ended = run(checkout, "-c", (
        "import ctypes, numpy as np\n"
        "from embtrain.kernels.training import skipgram as wrapper\n"
        "u, v = (wrapper.Table(np.ones((4, 16), np.float32)) for _ in range(2))\n"
        "one = np.zeros(1, np.int64)\n"
        "windows = wrapper.Windows(one, np.array([0, 1]), one)\n"
        # not a row of the table, and the check is bypassed
        "columns = wrapper.NegativeBatch(np.full((1, 1), 100_000), 1)\n"
        "task = wrapper._task(u, v, windows, columns, wrapper.SkipGramLossSpec('logistic'), .1, None, None)\n"
        "loss = ctypes.c_double()\n"
        "begin, end = ctypes.c_int64(0), ctypes.c_int64(1)\n"
        "wrapper.core().embtrain_skipgram_update(ctypes.byref(task), begin, end, ctypes.byref(loss), None)\n"
    ))
    assert ended.returncode != 0 and "AddressSanitizer" in ended.stderr, ended.stderr[-3000:]

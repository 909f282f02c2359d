"""One thread, reproducible examples, and no skip that tests/skips.txt does not allow."""

from __future__ import annotations

import contextlib
import fnmatch
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

from embtrain.common import machine

# A shell that starts tests in the background makes them and their commands ignore Ctrl-C, nohup SIGHUP.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before anything imports torch; commands that a test starts inherit it.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

with contextlib.suppress(ImportError):  # a machine that runs the gpu tests alone may lack hypothesis
    from hypothesis import HealthCheck, settings

    settings.register_profile("house", deadline=None, derandomize=True, database=None,
                              suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("house")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Reset torch to one thread after each test."""
    yield
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_progress() -> Iterator[None]:
    """Restore whether progress is printed: a command that a test runs in its own process sets this by --quiet."""
    name = "embtrain.common.progress"
    was_quiet = getattr(sys.modules.get(name), "quiet", False)
    yield
    if (progress := sys.modules.get(name)) is not None:
        progress.quiet = was_quiet  # type: ignore[attr-defined]


@pytest.fixture(autouse=True, scope="session")
def _fast_fsync() -> Iterator[None]:
    """fsync returns without waiting for the disk: a run calls it dozens of times, and no test cuts the power.

    Tests of the order of writes count the calls. Processes that a test starts do wait.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: os.fstat(file if isinstance(file, int) else file.fileno()) and None)
        yield


def _empty_chart(key: str, about: str, *data: object) -> str:
    from embtrain.report.format import plain

    return f'<svg viewBox="0 0 1 1" role="img" aria-label={quoteattr(plain(about))} />'


@contextlib.contextmanager
def _without_charts() -> Iterator[None]:
    from embtrain.report.charts import strategies, svg

    with pytest.MonkeyPatch.context() as patch:
        for module, names in ((svg, "lines whiskers"), (strategies, "banded spread against cost")):
            for name in names.split():
                patch.setattr(module, name, _empty_chart)
        yield


@pytest.fixture
def empty_charts() -> Iterator[None]:
    """Reports get charts without content: matplotlib takes 0.1 CPU seconds for each, and a run has about twenty.

    tests/unit/report tests the content. Processes that a test starts draw their charts.
    """
    with _without_charts():
        yield


@pytest.fixture(scope="module")
def empty_charts_of_module() -> Iterator[None]:
    """The same for all tests and fixtures of a module."""
    with _without_charts():
        yield


@pytest.fixture(autouse=True, scope="module")
def _no_charts_of_runs(request: pytest.FixtureRequest) -> None:
    """Modules that train runs have empty charts."""
    if request.node.get_closest_marker("long") is not None:
        request.getfixturevalue("empty_charts_of_module")


@pytest.fixture(autouse=True)
def _no_charts_of_a_run(request: pytest.FixtureRequest) -> None:
    """The same for a test that trains runs in a module of quick ones."""
    if request.node.get_closest_marker("long") is not None:
        request.getfixturevalue("empty_charts")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without garbage collection, which later leaves out the modules and tests that stay to the end."""
    with machine.paused_collector():
        return (yield)


def pytest_unconfigure() -> None:
    """Unfreeze the modules: a library that looks for leaks at exit would report its own functions."""
    gc.unfreeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("gpu: no CUDA device on this machine")


# --- skips ---------------------------------------------------------------------------------------------------------

Skip = tuple[str, str]  # node id, reason


def allow_list(text: str, have_data: bool) -> list[Skip]:
    """Return the patterns of tests/skips.txt, without those for "data: " if the data sets are available."""
    lines = (line.strip() for line in text.splitlines())
    pairs = [tuple(part.strip() for part in line.split("|", 1)) for line in lines if line and not line.startswith("#")]
    return [(node, reason) for node, reason in pairs if not (have_data and reason.startswith("data:"))]


def unexpected(skips: list[Skip], allowed: list[Skip]) -> list[Skip]:
    def is_allowed(skip: Skip) -> bool:
        return any(fnmatch.fnmatchcase(skip[0], node) and fnmatch.fnmatchcase(skip[1], reason)
                   for node, reason in allowed)

    return [skip for skip in skips if not is_allowed(skip)]


def _skips(config: pytest.Config) -> list[Skip]:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None:
        return []
    reports = terminal.stats.get("skipped", [])
    reasons = (r.longrepr[2] if isinstance(r.longrepr, tuple) else str(r.longrepr) for r in reports)
    return [(r.nodeid, reason.removeprefix("Skipped: ")) for r, reason in zip(reports, reasons, strict=True)]


def _unexpected(config: pytest.Config) -> list[Skip]:
    text = (Path(__file__).parent / "skips.txt").read_text(encoding="utf-8")
    return unexpected(_skips(config), allow_list(text, bool(os.environ.get("EMBTRAIN_DATA_MIRROR"))))


def pytest_sessionfinish(session: pytest.Session) -> None:
    # The workers of a parallel run report to the first process, which decides.
    if not hasattr(session.config, "workerinput") and session.exitstatus == pytest.ExitCode.OK \
            and _unexpected(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    skips = _skips(config)
    if not skips:
        return
    kinds = Counter(reason.split(":")[0] for _, reason in skips)
    terminalreporter.write_line("skipped: " + ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())))
    for node, reason in _unexpected(config):
        line = f"FAILED: skipped, and tests/skips.txt does not allow it: {node} | {reason}"
        terminalreporter.write_line(line, red=True)

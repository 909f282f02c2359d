"""The command line: arguments, output and exit codes."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main
from pydantic_core import SchemaValidator

import embtrain
from embtrain import cli
from embtrain.cli import commands
from embtrain.common import errors, files, progress, shipped
from embtrain.common.types import Score
from embtrain.data.vectors.open import PLAIN, ReadOptions
from embtrain.kernels.core.loader import core, describe
from embtrain.train.group.processes import SOLO

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
ROW = Score("wordsim353", "spearman", 0.5, 0.25, 0.75, 242, "ä")
PLAN = type("Plan", (), {"tree": lambda self: {}, "__str__": lambda self: "PLAN"})()
TRAINED = SimpleNamespace(folder=Path("runs/x"), scores=[ROW], table=lambda: f"TABLE quiet={progress.quiet}")

# For tests in a separate process: a `fit` that runs the code in the variable FIT.
FAKE = """
import os, sys, types
experiment = types.ModuleType("embtrain.experiment")
experiment.resolve = lambda *options: options
experiment.fit = lambda settings, out: eval(os.environ["FIT"])
inspect = types.ModuleType("embtrain.experiment.inspect")
inspect.neighbours = types.SimpleNamespace(neighbours=lambda path, words, count: [], as_tree=list,
                                           format_text=lambda result: "w" * 1_000_000)
api = types.ModuleType("embtrain.experiment.api")
api.fit = "the function"
sys.modules |= {"embtrain.experiment": experiment, "embtrain.experiment.inspect": inspect, api.__name__: api}
"""
# Joining the processes of a run imports torch, two CPU seconds that most of these tests do not need.
ALONE = """
import contextlib
launch = types.ModuleType("embtrain.train.group.launch")
launch.join = lambda: contextlib.nullcontext(types.SimpleNamespace(size=1, is_first=True))
sys.modules[launch.__name__] = launch
"""
MAIN = "from embtrain.cli import main; main()"


def python(code: str, *args: str, fit: str = "", cwd: Path | str = ROOT, **more: Any) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "FIT": fit, **more.pop("env", {})}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.Popen([sys.executable, "-c", code, *args], cwd=cwd, text=True, env=env, **streams)


class Console:
    """Runs a command line in this process with a substitute for embtrain.experiment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self.calls: list[Any] = []
        self.fit: Callable[[], Any] = lambda: TRAINED
        self.monkeypatch, self.capsys = monkeypatch, capsys
        names = ("resolve", "plan", "fit", "resume", "evaluate", "export")
        fake = SimpleNamespace(**{name: self.record(name) for name in names}, interval_share=lambda *_: 0.9)
        inspect = SimpleNamespace(neighbours=SimpleNamespace(
            neighbours=self.record("neighbours"), format_text=str.lower, as_tree=list))
        monkeypatch.setitem(sys.modules, "embtrain.experiment", fake)
        monkeypatch.setitem(sys.modules, "embtrain.experiment.inspect", inspect)
        monkeypatch.setattr(embtrain, "experiment", fake, raising=False)
        monkeypatch.setattr(files, "check_exists", lambda *path: None)  # runs/x does not exist
        monkeypatch.setattr(progress, "quiet", False)

    def record(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.calls.append((name, *args))
            return {"fit": self.fit, "resume": self.fit, "evaluate": lambda: [ROW], "plan": lambda: PLAN,
                    "export": lambda: None}.get(
                name, name.upper)()

        return call

    def __call__(self, *args: str) -> tuple[int, str, str]:
        self.calls.clear()
        self.monkeypatch.setattr(sys, "argv", ["embtrain", *args])
        code = cli.run()
        return code, *self.capsys.readouterr()


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(monkeypatch, capsys)


# --- arguments and output ------------------------------------------------------------------------------

def test_the_options_of_fit_reach_the_experiment(console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                 ) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("c", "f.yaml"):
        Path(name).touch()
    assert console("fit", "--negatives", "ace", "--model", "skipgram", "--corpus", "c", "--loss", "nce",
                   "--config", "f.yaml", "--set", "a.b=1", "--set", "c=2", "--seed", "3", "--threads", "4",
                   "--device", "cpu", "--out", "o", "--tuned")[0] == 0
    assert console.calls == [("resolve", "ace", "skipgram", "c", "nce", Path("f.yaml"), ["a.b=1", "c=2"], 3, 4,
                              "cpu", {}, True),
                             ("fit", "RESOLVE", Path("o"))]


def test_without_options_the_command_line_sets_nothing_and_a_dry_run_does_not_train(console: Console) -> None:
    assert console("fit", "--dry-run") == (0, "PLAN\n", "")
    assert console.calls == [("resolve", None, None, None, None, None, [], None, None, None, {}, False),
                             ("plan", "RESOLVE", SOLO, None)]


def test_the_short_options_precede_the_sets_and_are_named_in_errors(console: Console) -> None:
    assert console("fit", "--dim", "7", "--set", "model.dim=8", "--epochs", "2", "--dry-run")[0] == 0
    assert console.calls[0][6:] == (["train.epochs=2", "model.dim=7", "model.dim=8"], None, None, None, {
        "--set train.epochs=2": "--epochs 2", "--set model.dim=7": "--dim 7"}, False)



def test_a_run_ends_with_its_table_and_its_folder(console: Console) -> None:
    assert console("fit") == (0, "TABLE quiet=False\nrun: runs/x\n", "")
    assert console("fit", "--quiet") == (0, "TABLE quiet=True\nrun: runs/x\n", "")
    assert console("resume", "runs/x") == (0, "TABLE quiet=False\nrun: runs/x\n", "")
    assert console.calls == [("resume", Path("runs/x"))]


def test_quiet_hides_no_warning(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    console.fit = lambda: logging.getLogger("embtrain").warning("half of it is no text") or TRAINED
    assert console("fit", "--quiet") == (0, "TABLE quiet=True\nrun: runs/x\n", "embtrain: half of it is no text\n")


@pytest.mark.parametrize("args", [["fit"], ["resume", "runs/x"], ["evaluate", "runs/x"]])
def test_stdout_contains_only_json(console: Console, args: list[str]) -> None:
    rows = [{"benchmark": "wordsim353", "metric": "spearman", "value": 0.5, "low": 0.25, "high": 0.75, "n": 242,
             "note": "ä"}]
    expected = rows if args[0] == "evaluate" else {"run": "runs/x", "scores": rows}
    assert json.loads(console(*args, "--json")[1]) == expected


def test_the_other_commands_reach_the_experiment(console: Console) -> None:
    code, out, _ = console("evaluate", "v.txt", "--on", "a, b", "--on", "c")
    assert code == 0 and "wordsim353" in out and "0.5" in out and "90 % interval" in out
    assert console.calls == [("evaluate", Path("v.txt"), ["a", "b", "c"], ())]
    assert console("neighbours", "runs/x", "king", "queen", "--count", "3") == (0, "neighbours\n", "")
    assert console.calls == [("neighbours", Path("runs/x"), ["king", "queen"], 3)]
    assert console("export", "runs/x", "--format", "safetensors", "--out", "o") == (0, "o\n", "")
    assert console.calls == [("export", Path("runs/x"), "safetensors", Path("o"), PLAIN, "float32", "auto")]
    options = ["--dtype", "int8", "--index", "hnsw", "--limit", "9"]
    assert console("export", "runs/x", "--format", "faiss", "--out", "o", *options) == (0, "o\n", "")
    assert console.calls == [("export", Path("runs/x"), "faiss", Path("o"), ReadOptions(9), "int8", "hnsw")]


RUN_COMMANDS = {"resume": [], "continue": ["--corpus", "lines.txt"], "report": [], "diagnose": ["--negatives", "sgns"],
                "evaluate": [], "neighbours": ["king"], "translate": ["lines.txt"], "predict": ["king"],
                "export": ["--format", "word2vec", "--out", "a.txt"], "submit": []}


def test_every_command_names_the_nearest_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                             tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines.txt").write_text("a\n")
    Path("runs/20260101-skipgram-ace").mkdir(parents=True)
    Path("runs/20260101-skipgram-ace/config.yaml").write_text("{}\n")
    known = typer.main.get_command(commands.app).commands
    assert {name for name, one in known.items() for argument in getattr(one, "params", [])
            if argument.metavar in ("RUN", "RUN...", "PATH")} == set(RUN_COMMANDS)
    for name, more in RUN_COMMANDS.items():
        monkeypatch.setattr(sys, "argv", ["embtrain", name, "runs/ace", *more])
        assert cli.run() == 3
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1, name
        assert "runs/ace: file or folder not found (did you mean 'runs/20260101-skipgram-ace'?); give" in lines[0], name


def test_data_list_names_every_recipe_once(console: Console) -> None:
    code, out, err = console("data", "list")
    names = [line.split()[0] for line in out.splitlines()]
    assert (code, names, err) == (0, ["name", *shipped.names("corpora"), *shipped.names("evals")], "")


@pytest.mark.parametrize("verb", ["fetch", "verify"])
def test_unknown_data_is_refused_by_name(console: Console, verb: str) -> None:
    code, out, err = console("data", verb, "nonsense")
    assert code == 2 and out == "" and "nonsense" in err and len(err.splitlines()) == 1


def test_data_fetch_and_verify_print_the_available_data(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    from embtrain.data.catalogue import fetch

    calls: list[tuple[str, bool]] = []

    def fetch_named(name: str, trust: bool) -> list[Path]:
        calls.append((name, trust))
        return [Path(f"cache/{name}")]

    monkeypatch.setattr(fetch, "fetch_named", fetch_named)
    monkeypatch.setattr(fetch, "verify_named", lambda name: [
        fetch.VerifiedFile(Path(f"cache/{name}"), "cached", "abc")])
    assert console("data", "fetch", "a", "b", "--trust") == (0, "cache/a\ncache/b\n", "")
    assert calls == [("a", True), ("b", True)]
    assert console("data", "verify", "a") == (0, "abc  cache/a\n", "")


@pytest.mark.parametrize(("verb", "what"), [("fetch", "fetch"), ("verify", "check")])
def test_generated_data_has_nothing_to_fetch(console: Console, verb: str, what: str) -> None:
    lines = f"grammar: is generated when it is read; there is nothing to {what}\n"
    assert console("data", verb, "grammar") == (0, "", lines)
    assert console("data", verb, "grammar", "--json") == (0, "[]\n", lines)


@pytest.mark.parametrize(("done", "seconds", "message"), [
    (1234, 1.0, "1,234 blocks/s"), (10, 1.0, "10 blocks/s"), (25, 10.0, "2.5 blocks/s"), (1, 1.0, "1 blocks/s"),
    (1, 12.4, "12 s a block"), (2, 5.0, "2.5 s a block"), (1, 2500.0, "2,500 s a block"), (0, 5.0, "0 blocks/s")])
def test_slow_progress_prints_the_seconds_per_item(monkeypatch: pytest.MonkeyPatch, done: int, seconds: float,
                                                   message: str) -> None:
    monkeypatch.setattr(progress.time, "monotonic", lambda: 0.0)
    counted = progress.Progress("training", 5000, "blocks")
    counted.done = done
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds)
    assert f"blocks, {message}" in counted._line("")


def test_doctor_prints_versions_cores_memory_and_folders(
        console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CACHE": str(tmp_path / "new"), "OFFLINE": "1", "DATA_MIRROR": str(tmp_path)}.items():
        monkeypatch.setenv(f"EMBTRAIN_{name}", value)
    code, out, _ = console("doctor")
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert code == 0 and lines["engine"] == ("fused, autograd" if core() else "autograd") \
        and lines["core"] == describe()
    assert "build" in lines["torch"] and "free" in lines["memory"]
    assert lines["cache"].startswith(f"{tmp_path / 'new'} (writable") and not (tmp_path / "new").exists()
    assert lines["offline"].startswith("yes") and lines["mirror"] == str(tmp_path)
    assert {"python", "numpy", "gensim", "cores", "devices"} <= set(lines)
    monkeypatch.setenv("EMBTRAIN_CACHE", "/proc/self/embtrain")  # a path where even root cannot write
    assert "NOT writable" in console("doctor")[1]


def test_help_and_version(console: Console) -> None:
    code, out, _ = console("--help")
    assert code == 0
    for name in ("fit", "resume", "evaluate", "translate", "neighbours", "export", "data", "list", "doctor", "report"):
        assert f"\n  {name} " in out
    assert console("--version") == (0, f"embtrain {embtrain.__version__}\n", "")


def test_strategies_are_completed_by_the_shell() -> None:
    done = python(MAIN, env={"_EMBTRAIN_COMPLETE": "complete_bash", "COMP_WORDS": "embtrain fit --negatives sg",
                             "COMP_CWORD": "3", "_TYPER_COMPLETE_ARGS": "embtrain fit --negatives sg"})
    words = done.communicate()[0].split()
    assert "sgns" in words and "nce" not in words


# --- errors and exit codes --------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("error", "code", "message"), [
    (errors.UsageError("f:1:2: a: wrong", "f:2:1: b: wrong"), 2, ["error: f:1:2: a: wrong", "error: f:2:1: b: wrong"]),
    (errors.DataError("t.txt:9: damaged"), 3, ["error: t.txt:9: damaged"]),
    (errors.ResourceError("no room"), 4, ["error: no room"]),
    (MemoryError(), 4, ["error: not enough memory"]),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes\nmore"), 4,
     ["error: not enough memory: DefaultCPUAllocator: can't allocate memory: 9 bytes"]),
    (OSError(28, "No space left on device", "runs/x"), 4, ["error: runs/x: No space left on device"]),
    (OSError(5, "Input/output error", "runs/x"), 4, ["error: runs/x: Input/output error"]),
    (PermissionError(13, "Permission denied", "runs/x"), 4, ["error: runs/x: Permission denied; change the "
                                                           "permissions, or choose another path"]),
    (OSError(36, "File name too long", "x" * 5000), 2, [f"error: {'x' * 200}: File name too long"]),
    (errors.Stopped(15), 143, ["stopped by signal 15"]),
    (errors.Stopped(2), 130, ["stopped by signal 2"]),
    (KeyboardInterrupt(), 130, []),
    (SystemExit(5), 5, []),
])
def test_an_error_prints_its_lines_and_exits_with_its_code(
        console: Console, error: BaseException, code: int, message: list[str]) -> None:
    def fail() -> None:
        raise error

    console.fit = fail
    assert console("fit") == (code, "", "".join(f"embtrain: {line}\n" for line in message))


@pytest.mark.parametrize("args, named, command", [
    (["fit", "--sede", "3"], "--sede", "embtrain fit"), (["fti"], "fti", "embtrain"),
    (["fit", "--seed", "x"], "--seed", "embtrain fit"), (["neighbours", "x"], "WORD", "embtrain neighbours"),
    (["data", "fetch"], "NAME", "embtrain data fetch"), (["data", "no"], "no", "embtrain data"),
    (["fit", "stray"], "stray", "embtrain fit"), (["fit", "--seed"], "--seed", "embtrain fit"),
    (["data", "fetch", "x", "--out"], "--out", "embtrain data fetch"), (["--out"], "--out", "(see embtrain"),
    (["neighbours", "x", "w", "--count", "0"], "--count", "embtrain neighbours"), (["export", "x"], "--out", "export")])
def test_a_wrong_command_line_gives_one_line_and_runs_nothing(
        console: Console, args: list[str], named: str, command: str) -> None:
    code, out, err = console(*args)
    assert (code, out, console.calls) == (2, "", [])
    assert err.startswith("embtrain: error: ") and err.count("\n") == 1
    assert named in err and f"{command} --help" in err


@pytest.mark.parametrize("args", [[], ["data"]])
def test_without_a_command_the_commands_are_listed(console: Console, args: list[str]) -> None:
    code, out, err = console(*args)
    assert (code, out) == (2, "") and ("\n  fetch " if args else "\n  fit ") in err


@pytest.mark.parametrize("args, named", [
    (["fit", "--out", ""], "--out: has an empty value"), (["fit", "--corpus="], "--corpus: has an empty value"),
    (["resume", ""], "'': an argument after 'resume' is empty"),
    (["neighbours", "run", "king", ""], "'': an argument after 'king' is empty")])
def test_an_empty_path_from_an_unset_variable_is_refused(console: Console, args: list[str], named: str) -> None:
    message = f"embtrain: error: {named}; remove it or give a value\n"
    assert console(*args) == (2, "", message) and console.calls == []


@pytest.mark.parametrize("closed, code", [("0<&-", 0), ("1>&-", 4), ("2>&-", 0)])
def test_a_closed_stream_loses_only_its_own_output(closed: str, code: int) -> None:
    run = [sys.executable, "-m", "embtrain", "data", "list"]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *run], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    assert done.returncode == code and bool(done.stdout) == (code == 0)
    args = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *run[:3], "data", "verify", "nonsense"], cwd=ROOT,
                           capture_output=True, text=True, check=False)
    assert args.returncode == 2


def test_a_closed_input_has_nothing_to_translate() -> None:
    done = subprocess.run(["sh", "-c", 'exec "$@" 0<&-', "sh", sys.executable, "-m", "embtrain", "translate", "."],
                          cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2, "embtrain: error: standard input: is closed; pass the lines to translate\n")


def test_an_internal_error_is_saved_and_reported_in_one_line(
        console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    console.fit = lambda: {}["inner"]
    code, out, err = console("fit", "--seed", "3")
    (saved,) = tmp_path.glob("embtrain-crash-*.txt")
    assert (code, out) == (70, "")
    assert err == f"embtrain: error: a bug in embtrain (KeyError); please report {saved}\n"
    text = saved.read_text()
    assert "fit --seed 3" in text and "KeyError: 'inner'" in text and "Traceback" in text
    assert all(f"\n{name} " in text for name in ("python", "torch", "numpy"))


def test_an_error_wrapped_by_the_command_line_library_is_reported_as_itself(
        console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def fail() -> None:
        raise EOFError("ran out of input")

    console.fit = fail
    assert console("fit")[0] == 70
    assert "EOFError: ran out of input" in next(tmp_path.glob("embtrain-crash-*.txt")).read_text().splitlines()[-1]


def test_a_crash_report_goes_to_the_temporary_folder_if_this_one_is_not_writable(tmp_path: Path) -> None:
    done = python(FAKE + ALONE + MAIN, "fit", fit="{}['inner']", cwd="/proc", env={"TMPDIR": str(tmp_path)})
    err = done.communicate()[1]
    (saved,) = tmp_path.glob("embtrain-crash-*.txt")
    assert done.returncode == 70 and str(saved) in err and len(err.splitlines()) == 1


def test_an_internal_error_without_memory_for_its_report_is_one_line(
        console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platform.platform", fail)
    console.fit = lambda: {}["inner"]
    assert console("fit") == (
        70, "", "embtrain: error: a bug in embtrain (KeyError); please report this: KeyError: 'inner'\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", [["neighbours", ".", "word"], ["fit", "--help"]])
def test_a_reader_that_goes_away_ends_it_silently(args: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = python(FAKE + MAIN, *args, stdout=writing)
    os.close(writing)
    assert (done.communicate()[1], done.returncode) == ("", 141)


def test_a_closed_reader_of_progress_ends_it_silently() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = python(FAKE + ALONE + MAIN, "fit", fit="print('progress', file=sys.stderr, flush=True)", stderr=writing)
    os.close(writing)
    assert (done.communicate()[0], done.returncode) == ("", 141)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_it_with_the_customary_code(number: int, code: int) -> None:
    sleeping = python(FAKE + MAIN, "fit", fit="[print('asleep', flush=True), __import__('time').sleep(50)]")
    assert sleeping.stdout is not None and sleeping.stdout.readline() == "asleep\n"
    sleeping.send_signal(number)
    _, err = sleeping.communicate(timeout=30)
    assert sleeping.returncode == code and err == f"embtrain: stopped by signal {int(number)}\n"


def test_a_library_that_catches_everything_does_not_catch_a_signal() -> None:
    catches = "[print('asleep', flush=True), __import__('library').work()]"
    library = ("import types, time\ndef work():\n    try:\n        time.sleep(50)\n    except Exception:\n"
               "        print('caught')\nsys.modules['library'] = types.SimpleNamespace(work=work)\n")
    sleeping = python("import sys\n" + library + FAKE + ALONE + MAIN, "fit", fit=catches)
    assert sleeping.stdout is not None and sleeping.stdout.readline() == "asleep\n"
    sleeping.send_signal(signal.SIGTERM)
    out, err = sleeping.communicate(timeout=30)
    assert (out, err, sleeping.returncode) == ("", "embtrain: stopped by signal 15\n", 143)


def test_a_signal_turned_into_an_error_by_a_library_is_not_an_internal_error(console: Console) -> None:
    class Interrupted:
        def __repr__(self) -> str:
            raise errors.Stopped(15)

    def build() -> None:
        SchemaValidator({"type": "literal", "expected": [Interrupted()]})

    def call() -> None:
        raise SystemError("returned a result with an exception set") from errors.Stopped(2)

    console.fit = build
    assert console("fit") == (143, "", "embtrain: stopped by signal 15\n")
    console.fit = call
    assert console("fit") == (130, "", "embtrain: stopped by signal 2\n")


def test_an_error_is_printed_on_a_terminal_that_cannot_encode_it() -> None:
    done = python(FAKE + ALONE + MAIN, "fit", fit="sys.exit(print('a\\ud800 \\u00e4'))",
                  env={"PYTHONIOENCODING": "ascii"})
    assert (done.communicate(), done.returncode) == (("a\\ud800 \\xe4\n", ""), 0)


def test_python_m_is_the_same_command_and_its_errors_reach_the_shell() -> None:
    done = subprocess.run([sys.executable, "-m", "embtrain", "data", "verify", "nonsense"], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("embtrain: error: ") and done.stderr.count("\n") == 1


# --- cost of imports ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("code", [
    "import embtrain", "import embtrain.cli",
    "import embtrain.cli; sys.argv = ['embtrain', '--help']; embtrain.cli.run()"])
def test_the_package_the_command_line_and_its_help_import_nothing_heavy(code: str) -> None:
    heavy = {"torch", "pydantic", "yaml", "numpy", "gensim", "rich", "tqdm"}
    out, err = python(f"import sys; {code}; print('HEAVY', *({heavy} & set(sys.modules)))").communicate()
    assert out.endswith("HEAVY\n") and err == ""


def test_the_package_exports_fit_and_rejects_unknown_names() -> None:
    out, _ = python(FAKE + "import embtrain; print(embtrain.fit, 'fit' in dir(embtrain))").communicate()
    assert out == "the function True\n"
    with pytest.raises(AttributeError, match="nonsense"):
        _ = embtrain.nonsense


def test_words_that_no_vector_file_can_contain_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["embtrain", "fit", "--out", os.fsdecode(b"r\xff")])
    assert cli.run() == 2
    err = "embtrain: error: 'r\\udcff': is not UTF-8; give the file or folder another name\n"
    assert capsys.readouterr().err == err
    assert not list(tmp_path.iterdir())


def test_options_without_their_required_option_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["embtrain", "reproduce", "--out", str(tmp_path / "run"), "--seeds", "3"])
    assert cli.run() == 2
    assert "NAME: is missing" in capsys.readouterr().err

"""`embtrain submit`: a line has the scores and the repeatable command of a run, or is refused without one."""

from __future__ import annotations

import itertools
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.main
from helpers.docs_scripts import script

import embtrain
from embtrain import cli
from embtrain.cli import commands, experiments
from embtrain.common.config import dump
from embtrain.common.errors import DataError, UsageError
from embtrain.common.json_records import encode
from embtrain.experiment.inspect import submission
from embtrain.experiment.run import provenance
from embtrain.experiment.run.settings import resolve

script("make")  # adds the folder of the scripts to the path
board = script("leaderboard")
ARGUMENTS = ("--model", "order", "--negatives", "order", "--epochs", "2", "--seed", "3")
Submit = Callable[..., tuple[int, str, str]]


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Submit:
    """Write a run folder without training, submit it, and return the exit code, the output and the errors."""
    monkeypatch.chdir(tmp_path)
    settings = resolve("order", "order", sets=["train.epochs=2"], seed=3)

    def run(*arguments: str, program: str = "/usr/bin/embtrain", command: str = "fit", commit: str | None = "ab12",
            metric: str = "accuracy", config: str = "", **more: object) -> tuple[int, str, str]:
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text(config or dump(settings))
        (folder / "identity.json").write_text(json.dumps({
            "task": "pairs", "corpus": {"sha256": "cd"}, "argv": [program, command, *(arguments or ARGUMENTS)],
            "embtrain": "0.1.0", "code": "ef", "commit": commit, "threads": 1, "core": "none", "cores": 2,
            "processor": "A", "begun": "2026-01-02T03:04:05+0000", **more}))
        (folder / "scores.json").write_text(json.dumps([
            {"benchmark": part, "metric": metric, "value": value, "low": None, "high": None, "n": 5, "note": ""}
            for part, value in (("valid", .5), ("test", .75), ("training", 9.0))]))
        (folder / "metrics.jsonl").write_text('{"step": 1, "cpu_seconds": 7.5}\n')
        monkeypatch.setattr(sys, "argv", ["embtrain", "submit", "run", "--out", "lines.jsonl"])
        return cli.run(), *capsys.readouterr()

    return run


def test_the_line_has_the_scores_and_a_command_without_output_options(submit: Submit) -> None:
    code, out, err = submit(*ARGUMENTS, "--out", "run", "--quiet", program="/x/embtrain/__main__.py")
    assert (code, err) == (0, "")
    (line,) = submission.read(Path("lines.jsonl"))
    assert line.command == "embtrain fit --strategy order --model order --epochs 2 --seed 3"
    assert line.settings == "embtrain fit --strategy order --model order --epochs 2"
    assert (line.metric, line.scores) == ("test/accuracy", {"test/accuracy": .75})  # neither valid nor costs
    assert (line.corpus, line.seed, line.cpu_seconds, line.commit) == ("wordnet-mammals", 3, 7.5, "ab12")
    assert (line.date, line.machine) == ("2026-01-02", "A, 2 cores, core none, threads 1")
    assert out.splitlines() == [line.command, "test/accuracy: 0.75", "leaderboard: lines.jsonl"]
    code, _, err = submit()
    assert code == 2 and "already has a line" in err and len(submission.read(Path("lines.jsonl"))) == 1
    assert submit(*ARGUMENTS[:-1], "4")[0] == 2  # another seed than that of the settings


def test_a_run_of_a_comparison_has_the_command_of_its_settings(submit: Submit) -> None:
    """It began by `embtrain resume`, and was refused as if no command could repeat it."""
    sets = ["train.epochs=2", "loss.name=nce", "train.threads=1", "train.cpu_seconds=9"]
    settings = resolve("sgns", "order", "wordnet-mammals", sets=sets, seed=3)
    assert submit("cells/sgns-seed3", "--quiet", command="resume", config=dump(settings))[::2] == (0, "")
    (line,) = submission.read(Path("lines.jsonl"))
    words = shlex.split(line.command)
    given = [word for flag, word in itertools.pairwise(words) if flag == "--set"]
    assert words[:8] == "embtrain fit --strategy sgns --model order --corpus wordnet-mammals".split()
    assert "--seed 3" in line.command and {'loss.name="nce"', "train.epochs=2", "train.threads=1"} <= {*given}
    assert dump(resolve("sgns", "order", "wordnet-mammals", sets=given, seed=3)) == dump(settings)
    own = dump(settings).replace("strategy: sgns", "strategy: /x/mine.yaml")
    code, _, err = submit("cells/sgns-seed3", command="resume", config=own)
    assert code == 2 and "run: strategy: /x/mine.yaml: is a file that others do not have; train without it" in err


@pytest.mark.parametrize("root", ["2024", "null", "true", " a ", "a: b", "[a", "Säuge\t\U0001f600"])
def test_text_settings_of_a_comparison_are_text_in_the_command(submit: Submit, root: str) -> None:
    """Text that YAML reads as another value was refused, or gave other settings."""
    settings = resolve("order", "order", "wordnet-mammals", sets=[f"pairs.root={json.dumps(root)}"], seed=3)
    assert settings.model_dump()["pairs"]["root"] == root
    assert submit("cells/order-seed3", command="resume", config=dump(settings))[::2] == (0, "")
    words = shlex.split(submission.read(Path("lines.jsonl"))[0].command)
    given = [word for flag, word in itertools.pairwise(words) if flag == "--set"]
    assert dump(resolve("order", "order", "wordnet-mammals", sets=given, seed=3)) == dump(settings)


@pytest.mark.parametrize(("run", "command"), [("null", '"null"'), ('"null"', "null"), ('"2"', '" 2"')])
def test_a_text_that_differs_from_that_of_the_command_is_refused(submit: Submit, run: str, command: str) -> None:
    own = dump(resolve("order", "order", sets=["train.epochs=2", f"pairs.root={run}"], seed=3))
    code, _, err = submit(*ARGUMENTS, "--set", f"pairs.root={command}", config=own)
    assert code == 2 and "run: pairs.root: is " in err and "in the run, and its command now gives " in err


def test_a_flag_is_repeated_without_a_value() -> None:
    fit = typer.main.get_command(commands.app).commands["fit"]  # type: ignore[attr-defined]
    values, repeated = experiments._parse(fit, ["--model", "transe", "--tuned", "--corpus", "wn18rr", "--quiet"])
    assert values["tuned"] is True and repeated == ["--model", "transe", "--corpus", "wn18rr", "--tuned"]


@pytest.mark.parametrize(("words", "options"), [
    ((), {}), (("--negatives", "mine"), {}),
    ((), {"command": "resume", "config": dump(resolve("order", "order", seed=3)).replace("strategy: order",
                                                                                        "strategy: mine")}),
    ((), {"config": "strategy: order\nmodel: {name: mine}\n"}),
    ((), {"config": "strategy: order\nmodel: {name: order}\nnegatives: {source: mine}\n"})])
def test_a_run_of_own_code_is_refused(submit: Submit, words: tuple[str, ...], options: dict[str, str]) -> None:
    """Reported were a strategy, as a file that others do not have, and a model or source, as a missing plugin."""
    code, _, err = submit(*words, **options, plugins={"mine.py": "ab"})
    assert code == 2 and "identity.json: plugins: {'mine.py': 'ab'}: others do not have this code" in err


def test_a_run_with_tuned_settings_is_submitted(submit: Submit) -> None:
    tuned = dump(resolve(model="transe", corpus="wn18rr", seed=3, tuned=True))
    tuned_words = ("--model", "transe", "--corpus", "wn18rr", "--tuned", "--seed", "3")
    assert submit(*tuned_words, config=tuned, metric="mrr")[::2] == (0, "")
    assert "--tuned" in submission.read(Path("lines.jsonl"))[0].command


@pytest.mark.parametrize(("arguments", "options", "message"), [
    ((), {"program": "train.py"}, "run: was not trained by the command `embtrain fit`"),
    ((), {"command": "continue"}, "run: was not trained by the command `embtrain fit`"),
    ((*ARGUMENTS, "--config", "mine.yaml"), {}, "run: --config mine.yaml: is a file that others do not have"),
    (("--model", "order", "--negatives", "mine.yaml"), {}, "run: --strategy mine.yaml: is a file that others"),
    ((*ARGUMENTS, "--corpus", "mine.tsv"), {}, "run: --corpus mine.tsv: is a file that others do not have"),
    ((*ARGUMENTS, "--set", "train.start=mine.tsv"), {}, "/mine.tsv: is a file that others do not have; train without"),
    ((*ARGUMENTS, "--set", "train.start=run"), {}, "/run: is a file that others do not have; train without it"),
    ((*ARGUMENTS, "--set", "train.parent=gone"), {}, "/gone: is a file that others do not have; train without it"),
    ((*ARGUMENTS, "--set", "evaluate.benchmarks=[./gold.tsv]"), {}, "/gold.tsv: is a file that others do not have"),
    ((*ARGUMENTS, "--set", "corpus=run"), {}, "run: corpus: "),
    ((*ARGUMENTS, "--set", "strategy=mine.yaml"), {}, "run: strategy: mine.yaml: is a file that others do not have"),
    (("--model", "transe", "--negatives", "candidates", "--set", "negatives.file=run"), {}, "run: negatives.file: "),
    ((*ARGUMENTS, "--set", "train.lr=.5"), {}, "run: train.lr: is "),
    ((), {"commit": "ab12-dirty"}, "commit: ab12-dirty: the checkout had changes without a commit; commit them"),
    ((), {"metric": "f1"}, "scores.json: has no test/accuracy, by which the task is ranked"),
    ((*ARGUMENTS, "--nosuch"), {}, "option: --nosuch"),
])
def test_a_run_that_cannot_be_repeated_is_refused(submit: Submit, arguments: tuple[str, ...], options: dict[str, str],
                                                  message: str) -> None:
    Path("mine.tsv").write_text("a\tb\n")
    Path("mine.yaml").write_text("negatives: {source: uniform}\nloss: {name: order}\n")
    code, out, err = submit(*arguments, **options)
    assert code in (2, 3) and out == "" and err.count("\n") == 1 and message in err
    assert not Path("lines.jsonl").exists()


def row(strategy: str, seed: int, value: float, metric: str = "test/mrr", code: str = "c",
        **protocol: object) -> submission.Submission:
    return submission.Submission("t", "c", "s", protocol, "m", strategy, seed, metric, {metric: value}, 2.0, "0.1.0",
                                 code, None, "A", "2026-01-02", f"embtrain fit --strategy {strategy} --seed {seed}")


@pytest.mark.parametrize(("change", "message"), [
    ({"seed": "1"}, "seed must be a count"), ({"extra": 1}, "unknown key 'extra'"),
    ({"metric": "test/ap"}, "scores: test/ap"),
    ({"command": "python train.py"}, "command must begin with"), ({"scores": {"test/mrr": None}}, "finite number"),
])
def test_a_damaged_line_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    good = encode(row("a", 1, .5))
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(good) + "\n" + json.dumps(good | change) + "\n")
    with pytest.raises(DataError, match=rf"x\.jsonl:2: .*{message}"):
        submission.read(path)


@pytest.mark.parametrize(("metric", "first"), [("test/mrr", "b"), ("test/perplexity", "a")])
def test_strategies_are_ranked_with_mean_and_spread(metric: str, first: str) -> None:
    text = board.leaderboard([row("a", 1, .1, metric), row("b", 2, .5, metric), row("b", 1, .3, metric)])
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert lines[0].startswith(f"| `{first}` |") and len(lines) == 2
    assert any("| 0.40 ± 0.14 | 1, 2 |" in line and "| `embtrain fit --strategy b` |" in line for line in lines)
    assert board.leaderboard([row("b", 1, .3), row("b", 2, .5, code="d")]).count("| `b` |") == 2  # of other code


def test_only_runs_with_equal_held_out_examples_are_ranked() -> None:
    """Runs with other splits of one corpus had one table, where the easier split was best."""
    protocols = [{"percent": 0, "split": "edge"}, {"percent": 50, "split": "edge"}]
    text = board.leaderboard([row("a", 1, .3, **protocols[0]), row("b", 1, .9, **protocols[1]),
                              row("c", 1, .4, **protocols[0])])
    assert board.leaderboard([row("a", 1, .3, x=1, new=None), row("b", 1, .9, x=1)]).count("est first") == 1
    assert text.count("## t: c") == 1 and "`percent=0`: best first" in text and "`percent=50`: best first" in text
    assert "split" not in text
    assert text.index("`c`") < text.index("`a`") < text.index("`percent=50`") < text.index("`b`")


def test_the_protocol_is_that_of_the_data_and_of_held_out_scores(submit: Submit) -> None:
    assert submit()[0] == 0
    protocol = submission.read(Path("lines.jsonl"))[0].protocol
    assert protocol["pairs.protocol"] == "clean" and protocol["pairs.percent"] == 0
    assert {key.partition(".")[0] for key in protocol} <= {"pairs", "evaluate"}
    other = resolve("sgns", sets=["evaluate.vectors=sum", "text.sample=1e-4"])
    first, second = map(submission._protocol, (resolve("sgns"), other))
    assert {key for key in {**first, **second} if first.get(key) != second.get(key)} == {"evaluate.vectors"}
    free = {"pairs.observed", "evaluate.resamples", "text.workers", "evaluate.benchmarks", "train.epochs", "model.dim"}
    assert not free & {*protocol}


def test_every_line_of_the_leaderboard_is_valid_and_in_the_file_of_its_task() -> None:
    for path in board.LINES.glob("*.jsonl"):
        rows = submission.read(path)
        assert rows and all(path == submission.default_file(each) for each in rows)
        assert len({(each.command, each.code) for each in rows}) == len(rows)
        assert all(f"--seed {each.seed}" in each.command for each in rows)
        assert not any((each.commit or "").endswith("-dirty") for each in rows)


def test_the_commit_is_that_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = provenance.commit.__wrapped__   # without the cache
    git = tmp_path / "git"
    git.write_text(f'#!/bin/sh\n[ "$2" = "{tmp_path}" ] && echo ab12-dirty\n')
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(embtrain, "__file__", str(tmp_path / "embtrain" / "__init__.py"))
    assert commit() is None   # no .git
    with pytest.raises(UsageError, match="--out: is missing"):
        submission.default_file(row("a", 1, .5))
    (tmp_path / ".git").touch()
    assert commit() == "ab12-dirty"
    git.unlink()
    assert commit() is None

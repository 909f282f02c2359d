"""Runs in the process of a test: some blocks of training, stop and resume, and command lines."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from embtrain import cli, experiment
from embtrain.common.errors import Stopped
from embtrain.experiment import Run, Settings
from embtrain.experiment.run import components
from embtrain.experiment.tasks import base as tasks
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.compiled_windows import CompiledWindows
from embtrain.train.state import checkpoint
from embtrain.train.state.metrics_log import read
from helpers.bits import same
from helpers.tiny_runs import learning


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cache for all tests of the importing module."""
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def no_page(patch: pytest.MonkeyPatch) -> None:
    """Disable reports, which are tested elsewhere and would take most of the time."""
    patch.setattr("embtrain.experiment.run.run.report.write", lambda _: None)


def fit(config: Settings, folder: Path) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        no_page(patch)
        return experiment.fit(config, folder)


def value(run: Run, metric: str, part: str = "test") -> float:
    (row,) = (row for row in run.scores if (row.benchmark, row.metric) == (part, metric))
    assert row.value is not None
    return row.value


# --- some blocks of training ------------------------------------------------------------------------------------------

def trained(parts: components.Components, blocks: int, folder: Path) -> None:
    """Without logs and checkpoints."""
    trainer = learning(parts, folder)
    for block in range(blocks):
        n = parts.task.examples.n_blocks(0, trainer.block_size)
        if block % n == 0:
            parts.source.on_epoch_start(trainer.step.view)
        trainer.step(next(iter(trainer.read_blocks(block // n, trainer.block_size, block % n, True))))


def gain(config: Settings, blocks: int, folder: Path) -> float:
    """Increase of the reciprocal rank by n blocks: a margin, or NCE before log Z has converged, says little about
    probabilities, but it ranks."""
    parts = components.build(config, tasks.read(config))
    before = mrr(parts)
    trained(parts, blocks, folder)
    return mrr(parts) - before


def mrr(parts: components.Components) -> float:
    (reciprocal_rank,) = (row.value for row in parts.task.validate(parts) if row.metric == "mrr")
    assert reciprocal_rank is not None
    return reciprocal_rank


# --- stop and resume ----------------------------------------------------------------------------------------

def stop_at(block: int, patch: pytest.MonkeyPatch) -> None:
    """Send SIGTERM in the middle of that step."""
    calls: list[None] = []

    def stopping(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Step | CompiledWindows, *args: Any, **keys: Any) -> Any:
            calls.append(None)
            if len(calls) == block:
                os.kill(os.getpid(), signal.SIGTERM)
            return plain(self, *args, **keys)
        return call

    for engine in (Step, CompiledWindows):
        patch.setattr(engine, "__call__", stopping(engine.__call__))


def interrupted(config: Settings, folder: Path, *blocks: int) -> Run:
    """A run stopped after each of these numbers of blocks and resumed each time to the end."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        stop_at(blocks[0], patch)
        experiment.fit(config, folder)
    for block in blocks[1:]:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
            stop_at(block, patch)
            experiment.resume(folder)
    assert not (folder / "vectors.safetensors").exists()
    return experiment.resume(folder)


def metric_rows(folder: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in ("seconds", "cpu_seconds")}
            for line in read(folder / "metrics.jsonl")]


def state(folder: Path) -> dict[str, Any]:
    """The newest checkpoint without the entries that depend on a clock."""
    loaded = checkpoint.load(folder / "checkpoints")
    for key in ("seconds", "cpu_seconds", "log_offset"):
        del loaded["position"][key]
    return loaded


def assert_same_run(first: Path, second: Path, names: Sequence[str] = ("vocabulary.txt", "neighbours.json")) -> None:
    """names: files besides settings and vectors that both must hold, byte for byte."""
    for name in ("config.yaml", "vectors.safetensors", *names):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    assert metric_rows(first) == metric_rows(second)
    assert same(state(first), state(second))
    scores = [[row for row in json.loads((folder / "scores.json").read_text()) if "seconds" not in row["metric"]]
              for folder in (first, second)]
    assert scores[0] == scores[1]


# --- command lines ------------------------------------------------------------------------------------------------

def command(patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str, sets: Sequence[str] = (),
            given: bytes = b"", code: int = 0) -> str:
    """Output of `embtrain words --set ...`, or its errors if an exit code is expected."""
    patch.setattr(sys, "argv", ["embtrain", *words, *(word for key in sets for word in ("--set", key))])
    patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    ended, captured = cli.run(), capsys.readouterr()
    assert ended == code, captured.err
    return captured.err if code else captured.out

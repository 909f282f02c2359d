"""Runs with continuous outputs: each strategy trains with a fixed target table, logs its settings and resumes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from helpers.in_process import small_text

import embtrain
from embtrain.common import shipped
from embtrain.common.config import read_yaml
from embtrain.common.errors import UsageError
from embtrain.experiment.run.run import Run
from embtrain.train.state import checkpoint

pytestmark = pytest.mark.long

SETS = {"text.valid": 0.1, "text.test": 0.1, "text.min_count": 1, "model.dim": 6, "model.output_table.kind": "sphere",
        "train.epochs": 2, "train.chunk": 512, "train.batch": 128, "train.log_every": 1, "evaluate.heldout_pairs": 200,
        "evaluate.benchmarks": [], "evaluate.resamples": 0, "evaluate.neighbours": []}
STRATEGIES = [name for name in shipped.names("configs", "strategies")
              if read_yaml(shipped.path("configs", name, "strategies")).tree.get("model", {}).get("output_table")]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_text(tmp_path_factory.mktemp("continuous")) / "text"


def lines(run: Run) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]


def test_there_are_nine() -> None:
    assert set(STRATEGIES) == {"vmf", "vmf-released", "cosine", "power-spherical", "margin-random",
                               "margin-most-informative", "syn-margin-projection", "syn-margin-difference",
                               "sampled-softmax-cosine"}


@pytest.mark.parametrize("name", STRATEGIES)
def test_it_trains_and_the_table_is_unchanged(name: str, text: Path, tmp_path: Path) -> None:
    run = embtrain.fit(name, corpus=text, sets=SETS, seed=1, threads=1, out=tmp_path / "run")
    logged = [line for line in lines(run) if "loss" in line]
    assert all(math.isfinite(line["loss"]) for line in logged) and logged[-1]["loss"] < logged[0]["loss"]
    state = checkpoint.load(run.folder / "checkpoints")["model"]
    torch.testing.assert_close(state["v"].norm(dim=1), torch.ones(len(state["v"])))
    origin = "synthetic" if name.startswith("syn") else "noise"
    if name == "sampled-softmax-cosine":
        assert {key.split("/")[1] for key in logged[-1] if key.startswith("hardness/")} == {"noise"}
        return
    if "margin" not in name:
        assert not any(key.startswith("hardness") for key in logged[-1])
        return
    last = {key.split("/")[-1]: value for key, value in logged[-1].items() if key.startswith(f"hardness/{origin}/")}
    assert {"rank", "cosine", "cosine_sd", "lambda4", "lambda4_sd", "rest"} == set(last)
    if name == "syn-margin-projection":
        assert all("source/reversed" in line for line in logged)
        assert last["lambda4"] > 0.9 and last["rest"] < 1e-3     # less than 1 where the difference stood in
    elif name == "syn-margin-difference":
        assert last["cosine"] < 0 < last["lambda4"] and last["cosine_sd"] > 1e-3 and last["rest"] < 1e-3
    elif name == "margin-random":
        assert last["lambda4_sd"] > 0.1 and last["rest"] > 0.5
    else:
        assert last["lambda4"] > 0.2 and last["rest"] > 0.1


def test_a_resumed_run_equals_an_uninterrupted_one(text: Path, tmp_path: Path) -> None:
    sets = SETS | {"train.min_lr": 0.025}
    whole = embtrain.fit("syn-margin-projection", corpus=text, sets=sets, seed=1, threads=1, out=tmp_path / "whole")
    half = embtrain.fit("syn-margin-projection", corpus=text, sets=sets | {"train.epochs": 1}, seed=1, threads=1,
                        out=tmp_path / "half")
    config = half.folder / "config.yaml"
    config.write_text(config.read_text().replace("epochs: 1", "epochs: 2"))
    one, other = (checkpoint.load(run.folder / "checkpoints")["model"] for run in (whole, half.resume()))
    assert all(torch.equal(one[key], other[key]) for key in ("u", "v"))


def test_a_trained_table_is_refused_in_one_line(text: Path, tmp_path: Path) -> None:
    for name in STRATEGIES:
        with pytest.raises(UsageError, match=r"model\.output_table\.kind: learned") as caught:
            embtrain.fit(name, corpus=text, sets=SETS | {"model.output_table.kind": "learned"}, out=tmp_path / name)
        assert len(str(caught.value).splitlines()) == 1

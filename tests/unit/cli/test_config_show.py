"""`embtrain config show`: its output is a settings file with every key and its description."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from embtrain import cli
from embtrain.common.config import dump
from embtrain.common.config.described import as_yaml, describe
from embtrain.experiment.run.settings import resolve

RUNS = (("ace", "skipgram"), ("sgns", "transe"), ("order", "order"), ("rff", "lm"), ("kbgan", "transe"),
        ("syn-margin-projection", "nmt"), ("sgns", "xc"), ("typed", "transe"))


def show(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["embtrain", "config", "show", *arguments])
    return cli.run()


@pytest.mark.parametrize(("strategy", "model"), RUNS)
def test_the_output_is_a_file_of_the_same_settings(strategy: str, model: str, tmp_path: Path) -> None:
    settings = resolve(strategy, model, sets=["train.lr=0.0125"])
    path = tmp_path / "shown.yaml"
    path.write_text(as_yaml(describe(settings)), encoding="utf-8")
    assert dump(resolve(model=model, config=path)) == dump(settings)


@pytest.mark.parametrize(("strategy", "model"), RUNS)
def test_every_key_has_a_description(strategy: str, model: str) -> None:
    rows = describe(resolve(strategy, model))
    assert [row.key for row in rows if not row.is_section and not row.description] == []
    assert max(map(len, as_yaml(rows).splitlines())) <= 120


def test_a_part_keeps_its_sections(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(monkeypatch, "negatives.k", "--set", "negatives.k=7") == 0
    assert capsys.readouterr().out == "negatives:\n  k: 7  # negatives per draw\n"
    assert show(monkeypatch, "evaluate", "--model", "transe") == 0
    out = capsys.readouterr().out
    assert list(yaml.safe_load(out)) == ["evaluate"] and "hits: [1, 3, 10]  # the k of hits@k" in out


def test_allowed_values_are_listed_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(monkeypatch, "negatives.counts") == 0
    assert capsys.readouterr().out.endswith("frequent words (raw, subsampled)\n")
    assert show(monkeypatch, "model.output_table.kind", "--model", "skipgram") == 0
    assert "(learned, pretrained, sphere, hypercube, combined)" in capsys.readouterr().out


@pytest.mark.parametrize(("key", "message"), [
    ("negative", "negative: is not a key of these settings (did you mean 'negatives'?); the sections are model, "),
    ("negatives.hidden", "negatives.hidden: is not a key of these settings"), ("", "is empty; remove it or give")])
def test_a_wrong_key_is_named(key: str, message: str, monkeypatch: pytest.MonkeyPatch,
                              capsys: pytest.CaptureFixture[str]) -> None:
    assert show(monkeypatch, key, "--negatives", "sgns") == 2
    assert message in capsys.readouterr().err

"""A renamed key gives one line with the place, the key and its new name, and exit code 2; there are no aliases."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from embtrain import experiment
from embtrain.common.config import renamed_keys
from embtrain.common.errors import UsageError
from embtrain.experiment.comparison import compare
from embtrain.experiment.comparison.grid import read_grid
from embtrain.experiment.run.settings import settings_class
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives

OLD_RUN = ("strategy: sgns\ncorpus: gensim-wiki\nmodel: {name: skipgram, targets: {kind: learned}}\n"
           "negatives: {source: unigram, mask: target}\nloss: {name: logistic}\ntrain: {engine: step}\n")
RESUMED = ("config.yaml:3:25: model.targets: renamed to model.output_table; "
           "negatives.mask: renamed to negatives.filter",
           "config.yaml:6:9: train.engine: should be 'auto', 'autograd' or 'fused', got 'step' (renamed to 'autograd')")


def refused(call: Callable[[], object]) -> tuple[str, ...]:
    with pytest.raises(UsageError) as caught:
        call()
    assert caught.value.code == 2
    return caught.value.args


def test_on_the_command_line() -> None:
    assert refused(lambda: experiment.resolve("ace", sets=["negatives.modes=5"])) == (
        "--set negatives.modes=5: negatives.modes: renamed to negatives.min_perplexity",)


@pytest.mark.parametrize(("text", "line"), [
    ("train: {block: 64}\n", "my.yaml:1:9: train.block: renamed to train.chunk"),
    ("train:\n  block: 64\n  target: valid/mrr>1\n",
     "my.yaml:2:3: train.block: renamed to train.chunk; train.target: renamed to train.track_until"),
    ("negatives: {counted: after}\n", "my.yaml:1:13: negatives.counted: renamed to negatives.counts (before -> raw, "
                                      "after -> subsampled)"),
    ("negatives: {counts: after}\n", "my.yaml:1:13: negatives.counts: should be 'raw' or 'subsampled', got 'after' "
                                     "(renamed to 'subsampled')"),
    ("loss: {wrong: question}\n", "my.yaml:1:8: loss.wrong: renamed to loss.normalize_by (question -> query)")])
def test_in_a_file(text: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(text)
    assert refused(lambda: experiment.resolve("sgns", config=Path("my.yaml"))) == (line,)


def test_of_a_nested_source() -> None:
    from embtrain.common.types import ProblemSpec
    from embtrain.negatives.sampling.pool import build_nested

    problem = ProblemSpec.__new__(ProblemSpec)  # not read before the settings are
    settings = {"source": "unigram", "counted": "after", "mask": "target", "exponent": "high"}
    assert refused(lambda: build_nested(settings, "inner", None, problem)) == (
        "negatives.inner.exponent: should be a valid number, got 'high'",
        "negatives.inner.counted: renamed to negatives.inner.counts (before -> raw, after -> subsampled); "
        "negatives.inner.mask: renamed to negatives.inner.filter")


@pytest.mark.parametrize("command", [experiment.resume, experiment.evaluate])
def test_in_the_folder_of_a_run(command: Callable[[Path], object], tmp_path: Path,
                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    (tmp_path / "run/config.yaml").write_text(OLD_RUN)
    (tmp_path / "run/identity.json").write_text(json.dumps({"task": "windows"}))
    assert refused(lambda: command(Path("run"))) == tuple(f"run/{line}" for line in RESUMED)


def test_in_the_folder_of_a_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("done").mkdir()
    (tmp_path / "done/comparison.yaml").write_text(
        "strategies: [sgns, nce]\nseeds: [1]\nsets:\n- train.epochs=1\n- negatives.share=window\n")
    lines = refused(lambda: compare.compare(read_grid({}, out=Path("done")), Path("done")))
    assert lines == ("done/comparison.yaml:5:3: sets[1]: negatives.share: renamed to negatives.share_draws_by",)


def test_no_renamed_key_is_a_key_and_every_new_name_is_one() -> None:
    """Keys of all components together, so that the table cannot point to a missing key."""
    known = set()
    for model in models.names():
        known |= keys_of(settings_class(model, "unigram", "logistic"))
    for source in negatives.names():
        known |= {f"negatives.{key}" for key in negatives.find(source).Config.model_fields}
    for loss in losses.names():
        known |= {f"loss.{key}" for key in losses.find(loss).Config.model_fields}
    for old, new in renamed_keys.KEYS.items():
        if old != "during":
            assert old not in known, old
            assert new.split(" ")[0] in known, new
    for key, values in renamed_keys.VALUES.items():
        assert key in known and not set(values) & set(values.values())


def keys_of(settings: type) -> set[str]:
    return {f"{name}.{key}" for name, field in settings.model_fields.items()  # type: ignore[attr-defined]
            if hasattr(field.annotation, "model_fields") for key in field.annotation.model_fields}

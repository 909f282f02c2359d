"""Tuned settings: `--tuned` reads one file of configs/tuned between the strategy and the user's own settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.looped import looped

import embtrain
from embtrain.common import shipped
from embtrain.common.config import read_yaml
from embtrain.common.errors import UsageError
from embtrain.experiment import api, resolve
from embtrain.experiment.catalogue import listing

CASES = [(model, corpus) for model, corpora in shipped.tuned_names().items() for corpus in corpora]


@looped("model, corpus", CASES)
def test_every_file_resolves_to_what_it_states(model: str, corpus: str) -> None:
    tree = read_yaml(shipped.path("configs", f"{model}-{corpus}", "tuned")).tree
    settings = resolve(model=model, corpus=corpus, tuned=True).model_dump(mode="json")
    for section, stated in tree.items():
        resolved = settings[section]
        assert resolved == stated if isinstance(stated, str) else {k: resolved[k] for k in stated} == stated
    assert "strategy" in tree and settings["model"]["name"] == model and settings["corpus"] == corpus


def test_the_settings_of_the_user_override_tuned_ones(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("model: {dim: 30}\nloss: {margin: 4}\n")
    tuned = resolve(model="transe", tuned=True)
    mine = resolve(model="transe", tuned=True, config=own, sets=["model.dim=20"], seed=8)
    assert (tuned.model.dim, tuned.loss.margin) == (256, 9) and (mine.model.dim, mine.loss.margin) == (20, 4)
    assert mine.negatives == tuned.negatives and mine.train.seed == 8


def test_without_the_option_the_defaults_remain() -> None:
    settings = resolve(model="transe")
    assert (settings.model.dim, settings.negatives.k, settings.train.epochs) == (100, 64, 100)


def test_tuned_settings_change_the_loss_of_their_strategy() -> None:
    settings = resolve(model="transe", corpus="wn18rr", tuned=True)
    assert (settings.strategy, settings.loss.name, settings.negatives.k) == ("reflexive", "self_adversarial", 64)
    assert (settings.loss.margin, resolve("reflexive", model="transe").loss.margin) == (5.0, 9.0)


def test_a_loss_of_its_own_drops_that_of_the_strategy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """self-adversarial has a margin, which sampled_softmax does not know."""
    own, path = tmp_path / "tuned.yaml", shipped.path
    own.write_text("strategy: self-adversarial\nloss: {name: sampled_softmax}\nnegatives: {k: 512}\n")
    monkeypatch.setattr(shipped, "path", lambda *names: own if "tuned" in names else path(*names))
    settings = resolve(model="transe", corpus="wn18rr", tuned=True)
    assert (settings.strategy, settings.loss.name, settings.negatives.k) == ("self-adversarial", "sampled_softmax", 512)


@pytest.mark.parametrize(("wrong", "message"), [
    ({"model": "cbow"}, r"--tuned: cbow has no tuned settings; .*that has: .*transe"),
    ({"model": "transe", "corpus": "umls"}, r"tuned settings for the corpus umls; .*has: fb15k-237, wn18, wn18rr"),
    ({"model": "transe", "strategy": "margin"}, "^--negatives: strategy: --tuned names the strategy"),
    ({"model": "transe", "loss": "margin"}, r"^--loss: loss\.name: --tuned names the strategy"),
    ({"model": "transe", "sets": ["strategy=margin"]}, "^--set strategy=margin: strategy: --tuned names"),
    ({"model": "transe", "sets": ["loss.name=margin"]}, r"^--set loss\.name=margin: loss\.name: --tuned names")])
def test_refusals_name_what_exists(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        resolve(**wrong, tuned=True)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_of_the_user_cannot_name_another_strategy(tmp_path: Path) -> None:
    """It would combine that strategy's negatives with the margin tuned for another."""
    own = tmp_path / "own.yaml"
    own.write_text("model: {dim: 30}\nstrategy: margin\n")
    with pytest.raises(UsageError, match=r"own\.yaml:2:\d+: strategy: --tuned names the strategy and the loss; remove"):
        resolve(model="transe", tuned=True, config=own)


def test_python_trains_with_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    monkeypatch.setattr(api.runs, "fit", lambda settings, out: trained.append(settings))
    embtrain.fit(model="transe", tuned=True, sets={"train.epochs": 3})
    embtrain.fit(model="transe")
    assert [(x.model.dim, x.train.epochs) for x in trained] == [(256, 3), (100, 100)]


def test_the_listing_names_models_and_corpora() -> None:
    components = listing.listing()
    assert components["tuned"] == shipped.tuned_names()
    assert {"fb15k-237", "wn18rr"} <= set(components["tuned"]["transe"])
    assert "tuned settings (--tuned)" in listing.format_text(components)

"""CONTRIBUTING.md is correct: its files are extracted to their paths, pass the contract tests, and train."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from contract import test_combinations
from helpers import source_worlds

import embtrain
import embtrain.losses
import embtrain.negatives
from embtrain.common import registry, shipped
from embtrain.common.errors import UsageError
from embtrain.data.catalogue.recipes import read_recipe
from embtrain.experiment import Run
from embtrain.losses import base as losses
from embtrain.negatives import base as negatives
from embtrain.negatives.base import NegativeSource
from embtrain.testing import check_source

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = {name.strip(): text for name, text in re.findall(r"<!-- file: (.+?) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)}
SOURCES = ("even", "costly")


def put(name: str, folder: Path) -> Path:
    """Write a file of the page into `folder` under its name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / Path(name).name
    path.write_text(FILES[name], encoding="utf-8")
    return path


def forget(*names: str) -> None:
    registry.cached_classes.cache_clear()
    for name in names:
        sys.modules.pop(name, None)


def in_package(monkeypatch: pytest.MonkeyPatch, package: ModuleType, folder: Path, *names: str) -> Iterator[None]:
    """Make the files of the page importable as part of the package for the duration of a test."""
    kind = package.__name__.rpartition(".")[2]
    for name in names:
        put(f"embtrain/{kind}/{name}.py", folder / kind)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder / kind)])
    modules = [f"{package.__name__}.{name}" for name in names]
    forget(*modules)
    yield
    monkeypatch.undo()
    forget(*modules)
    for name in names:
        vars(package).pop(name, None)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from in_package(monkeypatch, embtrain.negatives, tmp_path, *SOURCES)


@pytest.fixture
def loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from in_package(monkeypatch, embtrain.losses, tmp_path, "squared_margin")


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty short documents where every other word follows from the previous one."""
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "text"
    folder.mkdir()
    draw = torch.Generator().manual_seed(2)
    for number in range(40):
        words = [f"{chr(97 + i)} {chr(65 + i)}" for i in torch.randint(20, (60,), generator=draw).tolist()]
        (folder / f"{number}.txt").write_text(" ".join(words) + "\n", encoding="utf-8")
    return folder


TINY = {"text.min_count": 1, "text.lower": False, "text.sample": 0, "text.window": 1, "model.dim": 8, "negatives.k": 4,
        "train.epochs": 3, "train.lr": 0.05, "train.batch": 32, "train.chunk": 256, "evaluate.benchmarks": [],
        "evaluate.resamples": 0}


def train(strategy: Path | str, text: Path, out: Path, **more: str) -> Run:
    return embtrain.fit(str(strategy), corpus=text, sets=TINY, threads=1, out=out, **more)


def likelihood(run: Run) -> float:
    (value,) = [row.value for row in run.scores if (row.benchmark, row.metric) == ("test", "log_likelihood")]
    assert value is not None
    return value


def test_every_file_of_the_page_is_tested() -> None:
    assert set(FILES) == {*(f"embtrain/negatives/{name}.py" for name in SOURCES), "evals/pets.yaml",
                          *(f"configs/strategies/{name}.yaml" for name in SOURCES), "corpora/letters.yaml",
                          "embtrain/losses/squared_margin.py", "pyproject.toml of your package",
                          "tests/test_even.py"}


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_trains_a_run(name: str, sources: None, text: Path, tmp_path: Path) -> None:
    assert name in negatives.names()
    strategy = put(f"configs/strategies/{name}.yaml", tmp_path)
    run = train(strategy, text, tmp_path / "run")
    assert run.settings.negatives.source == name
    assert likelihood(run) > -3.0                            # 40 words: log 40 = 3.69 before training
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize(("name", "settings"), [
    ("even", {}), ("even shared by windows", {"share_draws_by": "window"}),
    ("costly", {}), ("costly shared by the batch", {"share_draws_by": "batch"}),
])
def test_a_source_passes_the_contract_tests(name: str, settings: dict[str, str], sources: None,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(source_worlds.CASES, name, settings)
    check_source(registry.find("embtrain.negatives", NegativeSource, name.split()[0], "negatives.source"), **settings)
    test_combinations.test_it_learns_the_checkerboard(name, "logistic")
    test_combinations.test_it_learns_the_checkerboard(name, "nce")


def test_the_check_of_the_page_passes(sources: None, tmp_path: Path) -> None:
    runpy.run_path(str(put("tests/test_even.py", tmp_path)))


def test_unsupported_settings_of_a_source_are_refused(sources: None) -> None:
    result = negatives.find("costly")
    with pytest.raises(UsageError, match=r"negatives\.replacement"):
        result(result.Config(source="costly", replacement=False), source_worlds.tiny_problem())


def test_a_source_of_another_distribution_is_found_by_its_entry_point(tmp_path: Path, text: Path,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    put("embtrain/negatives/even.py", site / "their_noise")
    (site / "their_noise" / "__init__.py").write_text("")
    points = FILES["pyproject.toml of your package"].replace("project.entry-points.", "").replace('"', "")
    info = site / "their_noise-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-noise\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(site)
    try:
        forget()
        assert "even" in negatives.names()
        run = train(put("configs/strategies/even.yaml", tmp_path), text, tmp_path / "run")
        assert likelihood(run) > -3.0
    finally:
        monkeypatch.undo()
        forget("their_noise", "their_noise.even")


def test_the_loss_trains_a_run(loss: None, text: Path, tmp_path: Path) -> None:
    assert "squared_margin" in losses.names()
    run = train("sgns", text, tmp_path / "run", loss="squared_margin")
    assert run.settings.loss.name == "squared_margin"
    assert likelihood(run) > -3.0


def test_the_recipes_read(tmp_path: Path) -> None:
    corpus = read_recipe("corpora", put("corpora/letters.yaml", tmp_path))
    benchmark = read_recipe("evals", put("evals/pets.yaml", tmp_path))
    assert (corpus.name, benchmark.name) == ("letters", "pets")
    assert not {corpus.name, benchmark.name} & {*shipped.names("corpora"), *shipped.names("evals")}


def test_the_page_leaves_no_files() -> None:
    assert not {*SOURCES} & set(negatives.names()) and "squared_margin" not in losses.names()

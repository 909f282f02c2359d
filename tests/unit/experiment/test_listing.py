"""`embtrain list`: compatible components, with the refusals of training, within the width of a terminal."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from embtrain.common import shipped
from embtrain.common.config import read_yaml
from embtrain.common.errors import UsageError
from embtrain.common.terminal import WIDTH
from embtrain.experiment.catalogue import combinations, components, listing as listings
from embtrain.experiment.catalogue.listing import GROUPS, format_text, listing as everything
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives
from embtrain.report.format import cells
from embtrain.train.checks import compatibility


@pytest.fixture(scope="module")
def listing() -> str:
    return format_text(everything(with_combinations=True))


def table(listing: str, title: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return the names of the columns and the cells of each row."""
    part = listing.split(title)[1]
    lines = part.split("\n")[1:]
    head = next(i for i, line in enumerate(lines) if line.split() and set(map(len, line.split())) == {1})
    legend = " ".join(" ".join(lines[:head]).split())
    names = [name for _, name in (entry.split(" ") for entry in legend.split(", "))]
    rows = {}
    for line in lines[head + 1:]:
        name, *cells = line.split()
        if len(cells) != len(names) or not set("".join(cells)) <= set(".0123456789"):
            break
        rows[name] = cells
    return names, rows


def test_it_fits_a_terminal_and_names_the_next_command(listing: str) -> None:
    assert [line for line in listing.splitlines() if cells(line) > WIDTH or line != line.rstrip()] == []
    assert listing.splitlines()[-1] == "next: embtrain fit --negatives NAME --dry-run"


@pytest.mark.parametrize("width", [60, 120])
def test_it_fits_other_terminals(width: int) -> None:
    lines = format_text(everything(), width).splitlines()
    assert width - 12 < max(map(cells, lines)) <= width


def test_strategies_are_grouped_by_purpose_and_ablations_are_last() -> None:
    groups = {entry["name"]: entry["group"] for entry in everything()["strategies"]}
    assert list(groups) != sorted(groups) and set(groups) == set(shipped.names("configs", "strategies"))
    assert list(dict.fromkeys(groups.values())) == list(GROUPS)
    assert [groups[name] for name in ("sgns", "ace", "rff", "warp", "softmax", "typed", "ace-order", "vmf")] == [
        name for name in GROUPS if name != "ablation"]
    assert groups["ace-no-entropy"] == groups["ace-kg-no-filter"] == "ablation"
    text = format_text(everything())
    places = [text.index(f"\n {title}\n") for title in GROUPS.values()]
    assert places == sorted(places) and "without the entropy hinge" not in text[places[-1]:]


def test_a_strategy_without_a_group_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, found in (("", "None"), ("group: nosuch\n", "'nosuch'")):
        (tmp_path / "mine.yaml").write_text(f"# Mine.\n{text}negatives: {{source: uniform}}\nloss: {{name: nce}}\n")
        monkeypatch.setattr(shipped, "path", lambda *_: tmp_path / "mine.yaml")
        with pytest.raises(UsageError, match=f"group: should be one of static, adversarial, .*, got {found}"):
            listings._strategy("mine")


@pytest.mark.parametrize(("comment", "about"), [
    ("# One line.\n", "One line."), ("# Two sentences. Both are complete.\n", "Two sentences. Both are complete."),
    ("# A sentence with total\n# weight 1. And one that is not listed.\n", "A sentence with total weight 1."),
    ("# No full stop, eq. 5, in\n# two lines\n", "No full stop, eq. 5, in two lines")])
def test_descriptions_are_complete_sentences(tmp_path: Path, comment: str, about: str) -> None:
    (tmp_path / "a.yaml").write_text(f"{comment}group: static\n")
    assert listings._description(tmp_path / "a.yaml") == about


def test_every_description_ends_with_a_full_stop() -> None:
    assert [entry["name"] for entry in everything()["strategies"] if not entry["about"].endswith(".")] == []


@pytest.mark.parametrize("kind", ["models", "sources", "losses"])
def test_components_are_read_from_their_files_as_the_registry_finds_them(kind: str) -> None:
    about = {name: combinations.about(owner) for name, owner in combinations.component_classes(kind).items()}
    assert components.about_components(kind) == about and len(about) > 5


@pytest.mark.parametrize("fault", ["entry point", "not Python"])
def test_components_are_imported_if_their_files_do_not_suffice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                               fault: str) -> None:
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "a.py").write_text("class A:\n    name = 'a'\n" + ("" if fault == "entry point" else "("))
    monkeypatch.setattr(components.embtrain, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(components.importlib.metadata, "entry_points",
                        lambda group: [group] if fault == "entry point" else [])
    assert components.about_components("losses").keys() == set(losses.names())


def test_combinations_are_listed_only_on_request() -> None:
    assert "refused" not in everything() and "sources × losses" not in format_text(everything())


def test_every_component_has_a_line_of_its_own(listing: str) -> None:
    for kind in (models, negatives, losses):
        for name in kind.names():
            description = combinations.about(kind.find(name))
            assert len(description) > 15, name
            assert re.search(rf"^  {name} +{re.escape(description.split()[0])}", listing, re.MULTILINE), name


def test_the_matrix_has_every_pair_and_a_reason_for_each_refusal(listing: str) -> None:
    names, rows = table(listing, "sources × losses")
    assert names == losses.names() and list(rows) == negatives.names()
    notes = {cell for row in rows.values() for cell in row} - {"."}
    assert notes and all(re.search(rf"^  {number}  the (source|loss) ", listing, re.MULTILINE) for number in notes)
    cell_of = {(source, loss): rows[source][i] for source in rows for i, loss in enumerate(names)}
    assert cell_of["unigram", "nce"] == cell_of["every", "softmax"] == cell_of["none", "vmf"] == cell_of["ace",
            "logistic"] == "."
    assert "." not in (cell_of["none", "logistic"], cell_of["unigram", "softmax"], cell_of["hardest", "nce"],
                       cell_of["unigram", "vmf"])
    assert cell_of["hardest", "nce"] != cell_of["unigram", "softmax"]


def test_pairs_of_shipped_strategies_are_refused_only_with_default_settings(listing: str) -> None:
    """A refused pair of a shipped strategy must name the key that this strategy sets."""
    names, rows = table(listing, "sources × losses")
    for strategy in shipped.names("configs", "strategies"):
        tree = read_yaml(shipped.path("configs", strategy, "strategies")).tree
        cell = rows[tree["negatives"]["source"]][names.index(tree["loss"]["name"])]
        if cell != ".":
            (reason,) = re.findall(rf"^  {cell}  (.*?)(?=^  \d|\n\n)", listing, re.MULTILINE | re.DOTALL)
            assert "exclude_target" in reason or "replacement" in reason, strategy


def test_a_new_refusal_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    real = compatibility.incompatibilities

    def stricter(source, loss, model):  # type: ignore[no-untyped-def]
        more = [f"negatives.source: {source.name} is not wanted today; use another"] if source.name == "uniform" else []
        return more + real(source, loss, model)

    monkeypatch.setattr(combinations, "incompatibilities", stricter)
    text = format_text(everything(with_combinations=True))
    _, rows = table(text, "sources × losses")
    assert "." not in rows["uniform"] and "the source is not wanted today; use another" in text


def test_models_are_listed_with_incompatible_components(listing: str) -> None:
    names, rows = table(listing, "sources and losses × models")
    assert names == models.names()
    cell_of = {(part, model): rows[part][i] for part in rows for i, model in enumerate(names)}
    assert cell_of["cluster", "skipgram"] == cell_of["cluster", "distmult"] == cell_of["vmf",
            "skipgram"] == cell_of["vmf", "nmt"] == "."
    assert cell_of["cluster", "transe"] == cell_of["rff", "order"] == "1" and cell_of["vmf", "xc"] == "2"
    assert "unigram" not in rows and "logistic" not in rows
    assert combinations.geometries(models.find("transe")) == {"l1", "l2"}
    assert combinations.geometries(models.find("distmult")) == {"dot"}


def test_a_source_and_a_loss_need_a_common_geometry(monkeypatch: pytest.MonkeyPatch) -> None:
    margin = losses.find("margin")
    monkeypatch.setattr(margin, "traits", replace(margin.traits, geometry=frozenset({"cosine", "l1"})))
    refused = combinations.by_loss()
    assert "margin" not in refused["cluster"]  # cosine suits both
    monkeypatch.setattr(margin, "traits", replace(margin.traits, geometry=frozenset({"l1", "l2"})))
    refused = combinations.by_loss()
    assert "needs scores that are one of cosine, dot" in refused["cluster"]["margin"]
    assert "margin" not in refused["unigram"]  # which accepts any

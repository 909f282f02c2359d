"""`embtrain list`: compatible components, with the refusals of training, within the width of a terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from embtrain.common import shipped
from embtrain.common.config import read_yaml
from embtrain.experiment.catalogue import combinations
from embtrain.experiment.catalogue.listing import format_text, listing as everything
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives
from embtrain.report.format import WIDTH, cells
from embtrain.train.checks import compatibility


@pytest.fixture(scope="module")
def listing() -> str:
    return format_text(everything())


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
    text = format_text(everything())
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

"""The map of the vectors: positions, neighbours, the size of the page, and names that are never markup."""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from helpers.pages import HOSTILE, Page, checked
from helpers.run_folders import run_with_vectors
from sklearn.decomposition import PCA

from embtrain import report
from embtrain.common.errors import DataError
from embtrain.common.terminal import plain
from embtrain.data.storage import stored_corpus
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.words.neighbours import near, nearest_rows
from embtrain.report.render import vector_map
from embtrain.report.vector_map import entries, layout

MAX_PAGE_BYTES = 1_500_000


def data_of(page: Page) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(page.scripts[0])
    for key, kind in (("near", "<u2"), ("xy", "<u2"), ("cosines", "i1")):
        data[key] = np.frombuffer(base64.b64decode(data[key]), kind)
    return data


def page_of(folder: Path) -> Page:
    return checked(report.write(folder).read_text(encoding="utf-8"))


# --- the page ------------------------------------------------------------------------------------------------------

def test_the_page_has_the_neighbours_of_every_entry(tmp_path: Path) -> None:
    names = [f"e{i}" for i in range(40)]
    folder = run_with_vectors(tmp_path / "run", names)
    data, vectors = data_of(page_of(folder)), Vectors(names, vector_files.read(folder / "vectors.safetensors").table)
    assert data["names"] == names and data["k"] == 10
    rows, cosines = data["near"].reshape(40, 10), data["cosines"].reshape(40, 10)
    for i, name in enumerate(names):
        expected = near(vectors, name, 1, 10)
        assert [names[row] for row in rows[i]] == [other for other, _ in expected]
        assert np.abs(cosines[i] / 100 - [cosine for _, cosine in expected]).max() <= 0.00501


def test_entries_are_in_the_order_of_their_counts(tmp_path: Path) -> None:
    names = list("abcde")
    found = entries.read(run_with_vectors(tmp_path / "run", names, counts=np.array([1.0, 5, 3, 5, 0])))
    assert found is not None and found.names == ["b", "d", "c", "a", "e"]
    table = vector_files.read(tmp_path / "run" / "vectors.safetensors").unit
    assert np.array_equal(found.unit, table[[1, 3, 2, 0, 4]])
    of_file = entries.read(run_with_vectors(tmp_path / "other", names, counts=np.ones(3)))     # of other candidates
    assert of_file is not None and of_file.names == names


def test_a_small_table_has_fewer_neighbours(tmp_path: Path) -> None:
    page = page_of(run_with_vectors(tmp_path / "run", ["a", "b", "c"]))
    data = data_of(page)
    assert (data["near"].reshape(3, 10) == vector_map.NONE).sum(1).tolist() == [8, 8, 8]
    assert "among all 3 entities" in page.words
    (tmp_path / "run" / "identity.json").write_text("{}")
    assert "among all 3 words" in page_of(tmp_path / "run").words


def test_a_run_without_three_vectors_has_no_map(tmp_path: Path) -> None:
    folder = run_with_vectors(tmp_path / "run", list("ab"))
    assert "vectors" not in page_of(folder).ids and len(page_of(folder).scripts) == 1
    (folder / "vectors.safetensors").unlink()
    assert "vectors" not in page_of(folder).ids
    (folder / "vectors.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(DataError, match=r"vectors\.safetensors"):
        report.write(folder)


def test_a_damaged_file_of_counts_is_named(tmp_path: Path) -> None:
    folder = run_with_vectors(tmp_path / "run", list("abcde"))
    (folder / stored_corpus.FILE).write_bytes(b"x" * 50)
    with pytest.raises(DataError, match=r"corpus\.safetensors: cannot be read"):
        report.write(folder)


def test_a_page_of_5000_long_names_is_at_most_a_megabyte_and_a_half(tmp_path: Path) -> None:
    """Names of 120 bytes; longer ones leave room for fewer entries."""
    for size in (120, 1000):
        names = [f"entity {i} " + "long-näme-" * size for i in range(6000)]
        names = [name.encode()[:size].decode(errors="ignore") for name in names]
        folder = run_with_vectors(tmp_path / f"{size}", names, **{"scores.json": []})
        page = report.write(folder)
        assert page.stat().st_size <= MAX_PAGE_BYTES
        data = data_of(checked(page.read_text(encoding="utf-8")))
        assert len(data["names"]) == min(entries.MAX_ENTRIES, entries.n_fitting(names[:entries.MAX_ENTRIES]))
        assert len(data["names"]) == (5000 if size == 120 else 638)
        assert len(data["xy"]) == 2 * min(2000, len(data["names"]))
        assert data["near"].max() < len(data["names"])
        assert f"among the {len(data['names']):,} most frequent entities of 6,000" in page.read_text(encoding="utf-8")


def test_hostile_names_are_data(tmp_path: Path) -> None:
    names = [*(name for name in HOSTILE if "\n" not in name and "\ud800" not in name), "</script><script>alert(1)",
             "<!--<script>", "]]>", "\u2028"]
    page = page_of(run_with_vectors(tmp_path / "run", names, identity={"task": "<b>"}))
    assert data_of(page)["names"] == list(map(plain, names))
    assert page.tags["script"] == 2 and page.tags["b"] == 0


def test_the_same_run_gives_the_same_map(tmp_path: Path) -> None:
    pages = [report.write(run_with_vectors(tmp_path / part / "run", [f"e{i}" for i in range(80)], 9)) for part in "ab"]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_the_map_has_names_without_script_and_none_overlap(tmp_path: Path) -> None:
    names = [f"name{i}" for i in range(300)]
    positions = np.random.default_rng(3).random((300, 2))
    points = vector_map.pixels(positions)
    labels = vector_map.placed_labels(names, points)
    assert 20 < len(labels) <= vector_map.MAX_LABELS and labels[0][0] == "name0"
    half = [len(name) * vector_map.LETTER / 2 for name, _, _ in labels]
    for i, (_, x, y) in enumerate(labels):
        for j, (_, other_x, other_y) in enumerate(labels[:i]):
            assert abs(x - other_x) > half[i] + half[j] or abs(y - other_y) > vector_map.LINE
    html = report.write(run_with_vectors(tmp_path / "run", names)).read_text(encoding="utf-8")
    drawing = re.search(r'<svg viewBox="0 0 1000.*?</svg>', html, re.DOTALL)
    assert drawing is not None and drawing[0].count("h0") == 300 and ">name0</text>" in drawing[0]


# --- neighbours ------------------------------------------------------------------------------------------------------

def test_nearest_rows_agree_with_one_row_at_a_time() -> None:
    rng = np.random.default_rng(2)
    table = rng.standard_normal((700, 5)).astype(np.float32)     # more than one block of rows
    table[[3, 4, 5]] = table[2]                                  # ties: the earlier row first
    vectors = Vectors([str(i) for i in range(700)], table)
    rows, cosines = nearest_rows(vectors.unit, 7)
    for i in (0, 2, 3, 511, 512, 699):
        expected = near(vectors, str(i), 1, 7)
        assert [str(row) for row in rows[i]] == [name for name, _ in expected]
        assert cosines[i] == pytest.approx([cosine for _, cosine in expected], abs=1e-6)
    assert rows[3, :3].tolist() == [2, 4, 5]


# --- positions -------------------------------------------------------------------------------------------------------

def test_principal_components_agree_with_scikit_learn() -> None:
    rng = np.random.default_rng(4)
    unit = (rng.standard_normal((60, 6)) * [5, 3, 1, 1, .5, .1] + 2).astype(np.float32)
    positions, share = layout.principal_components(unit)
    reference = PCA(2, svd_solver="full").fit(unit.astype(np.float64))
    expected = reference.transform(unit.astype(np.float64))
    expected *= np.sign((expected * positions).sum(0))           # scikit-learn has another rule for the sign
    assert positions == pytest.approx(expected, abs=1e-9)
    assert share == pytest.approx(reference.explained_variance_ratio_.sum())


def test_the_largest_loading_of_a_component_is_positive() -> None:
    rng = np.random.default_rng(5)
    for _ in range(8):
        unit = rng.standard_normal((30, 5)).astype(np.float32)
        positions, _ = layout.principal_components(unit)
        loadings = np.linalg.lstsq(unit - unit.mean(0, dtype=np.float64), positions, rcond=None)[0]    # (5, 2)
        assert (loadings[np.abs(loadings).argmax(0), [0, 1]] > 0).all()


@pytest.mark.parametrize("unit", [np.ones((4, 3)), np.zeros((3, 2)), np.array([[1.0], [-1.0], [1.0]])])
def test_degenerate_vectors_have_finite_positions(unit: np.ndarray) -> None:
    positions, about = layout.layout(unit.astype(np.float32))
    assert positions.shape == (len(unit), 2) and np.isfinite(positions).all() and "nan" not in about
    assert positions.min() >= 0 and positions.max() <= 1


class Graph:
    """Replaces UMAP and openTSNE, and records its arguments."""

    arguments: dict[str, Any]

    def __init__(self, **arguments: Any):
        Graph.arguments = arguments

    def fit(self, unit: np.ndarray) -> np.ndarray:
        return unit[:, :2] * [3, 1]

    fit_transform = fit


@pytest.mark.parametrize(("module", "name", "said"), [("umap", "UMAP", "By UMAP"), ("openTSNE", "TSNE", "By t-SNE")])
def test_an_installed_method_is_used_with_a_seed_and_one_thread(monkeypatch: pytest.MonkeyPatch, module: str, name: str,
                                                                said: str) -> None:
    unit = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
    for other in ("umap", "openTSNE"):
        monkeypatch.setitem(sys.modules, other, None)            # importing it fails
    fake = ModuleType(module)
    setattr(fake, name, Graph)
    monkeypatch.setitem(sys.modules, module, fake)
    positions, about = layout.layout(unit)
    assert about.startswith(said) and Graph.arguments["random_state"] == layout.SEED
    assert Graph.arguments["n_jobs"] == 1 and np.ptp(positions, axis=0).max() == pytest.approx(1)
    assert "principal components" in layout.layout(unit[:layout.MIN_GRAPH - 1])[1]

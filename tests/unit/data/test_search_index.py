"""Search indexes, read by the libraries themselves and compared with brute force; float16 files; kept neighbours."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from embtrain import cli
from embtrain.common.errors import DataError, UsageError
from embtrain.data.vectors import search_index, vectors
from embtrain.data.vectors.search_index import KeptNeighbours, measure
from embtrain.data.vectors.vectors import Vectors
from embtrain.experiment.inspect import evaluate

V, D = 1_500, 24
QUERIES = 200


@pytest.fixture(scope="module")
def table() -> Vectors:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, D))[rng.integers(60, size=V)] + 0.6 * rng.normal(size=(V, D))
    return Vectors([f"w{i}" for i in range(V)], rows * rng.uniform(0.1, 9, size=(V, 1)))


@pytest.fixture
def file(table: Vectors, tmp_path: Path) -> Path:
    vectors.write(tmp_path / "v.bin", table, "word2vec-binary")
    return tmp_path / "v.bin"


def brute_force(table: Vectors, n: int, k: int) -> np.ndarray:
    """Return the k nearest other rows of the first n by cosine in float64, (n, k)."""
    rows = table.table.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosine = rows[:n] @ rows.T
    cosine[np.arange(n), np.arange(n)] = -2
    return np.argsort(-cosine, axis=1)[:, :k]


def require(library: str) -> Any:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"index: {library} is not installed; pip install 'embtrain[{library}]'")
    return importlib.import_module("usearch.index" if library == "usearch" else library)


def read_faiss(folder: Path) -> tuple[Any, str]:
    """Return the index of a folder, and the name of its class."""
    faiss = require("faiss")
    index = faiss.read_index(str(folder / "index.faiss"))
    return index, type(faiss.downcast_index(index)).__name__


def test_a_flat_index_finds_the_exact_neighbours(table: Vectors, file: Path, tmp_path: Path) -> None:
    require("faiss")
    kept = evaluate.export(file, "faiss", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["index.faiss", "index.json", "words.txt"]
    assert (tmp_path / "out" / "words.txt").read_text().splitlines() == table.words
    index, kind = read_faiss(tmp_path / "out")
    assert kind == "IndexFlatIP" and index.ntotal == V
    cosine, found = index.search(table.unit[:QUERIES], 11)
    assert np.array_equal(found[:, 0], np.arange(QUERIES)) and cosine[:, 0] == pytest.approx(1, abs=1e-6)
    assert np.array_equal(found[:, 1:], brute_force(table, QUERIES, 10))
    assert kept == KeptNeighbours(1.0, 10, 1_000)
    stored = json.loads((tmp_path / "out" / "index.json").read_text())
    assert stored["library"].startswith("faiss-cpu ")
    assert {key: stored[key] for key in ("index", "dtype", "metric", "words", "dim", "kept_neighbours")} == {
        "index": "flat", "dtype": "float32", "metric": "cosine", "words": V, "dim": D,
        "kept_neighbours": {"share": 1.0, "neighbours": 10, "words": 1_000}}


@pytest.mark.parametrize(("dtype", "kind", "name", "least"), [
    ("float16", "flat", "IndexScalarQuantizer", 0.99), ("int8", "flat", "IndexScalarQuantizer", 0.9),
    ("float32", "hnsw", "IndexHNSWFlat", 0.99), ("int8", "hnsw", "IndexHNSWSQ", 0.9)])
def test_the_stated_loss_of_faiss_is_that_of_the_file(table: Vectors, file: Path, tmp_path: Path, dtype: str, kind: str,
                                                      name: str, least: float) -> None:
    require("faiss")
    kept = evaluate.export(file, "faiss", tmp_path / "out", dtype=dtype, index=kind)
    index, class_name = read_faiss(tmp_path / "out")
    assert class_name == name
    assert_share(kept, table, least, lambda queries, k: index.search(queries, k)[1])
    assert json.loads((tmp_path / "out" / "index.json").read_text())["kept_neighbours"]["share"] == kept.share
    first = (tmp_path / "out" / "index.faiss").read_bytes()
    evaluate.export(file, "faiss", tmp_path / "out", dtype=dtype, index=kind)   # overwrites, with the same bytes
    assert (tmp_path / "out" / "index.faiss").read_bytes() == first


@pytest.mark.parametrize(("dtype", "least"), [("float32", 0.99), ("float16", 0.99), ("int8", 0.85)])
def test_usearch_reads_its_index(table: Vectors, file: Path, tmp_path: Path, dtype: str, least: float) -> None:
    library = require("usearch")
    kept = evaluate.export(file, "usearch", tmp_path / "out", dtype=dtype)
    index = library.Index.restore(str(tmp_path / "out" / "index.usearch"))
    assert (len(index), index.ndim) == (V, D)
    assert_share(kept, table, least, lambda queries, k: index.search(queries, k).keys.astype(np.int64))
    if dtype == "float32":
        found = index.search(table.unit[:QUERIES], 11, exact=True).keys
        assert np.array_equal(found[:, 1:], brute_force(table, QUERIES, 10))
    stored = json.loads((tmp_path / "out" / "index.json").read_text())
    assert (stored["index"], stored["dtype"], stored["kept_neighbours"]["share"]) == ("hnsw", dtype, kept.share)
    assert (tmp_path / "out" / "words.txt").read_text().splitlines() == table.words


def assert_share(kept: KeptNeighbours | None, table: Vectors, least: float, search: search_index.Search) -> None:
    """Check a share against sets of neighbours, which differ from it only where cosines are almost equal."""
    assert kept is not None
    exact = brute_force(table, 1_000, 10)
    found = [[i for i in ids if i != row][:10] for row, ids in enumerate(search(table.unit[:1_000], 11).tolist())]
    share = np.mean([len(set(a) & set(b)) for a, b in zip(found, exact.tolist(), strict=True)]) / 10
    assert kept.share == pytest.approx(share, abs=2e-4) and least < kept.share <= 1
    assert str(kept).endswith("of the 10 nearest neighbours of 1,000 words")


def test_large_tables_get_a_graph(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("faiss")
    for most, name in ((V, "IndexFlatIP"), (V - 1, "IndexHNSWFlat")):
        monkeypatch.setattr(search_index, "MAX_FLAT", most)
        evaluate.export(file, "faiss", tmp_path / "out")
        assert read_faiss(tmp_path / "out")[1] == name


@pytest.mark.parametrize("library", search_index.FORMATS)
def test_a_missing_library_is_one_line(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       library: str) -> None:
    monkeypatch.setattr(search_index, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as error:
        evaluate.export(file, library, tmp_path / "out")
    assert str(error.value) == f"--format: {library}: {library} is not installed; pip install 'embtrain[{library}]'"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("format", "dtype", "index", "line"), [
    ("word2vec", "float16", "auto", "--dtype: float16: word2vec cannot have it; set --format safetensors or faiss or "
                                    "usearch"),
    ("safetensors", "int8", "auto", "--dtype: int8: safetensors cannot have it; set --format faiss or usearch"),
    ("faiss", "int4", "auto", "--dtype: 'int4' is not one of float32, float16, int8"),
    ("faiss", "int8", "tree", "--index: 'tree' is not one of auto, flat, hnsw"),
    ("glove", "float32", "hnsw", "--index: hnsw: glove has no index; set --format faiss or usearch")])
def test_a_format_without_the_option_is_refused(file: Path, tmp_path: Path, format: str, dtype: str, index: str,
                                                line: str) -> None:
    with pytest.raises(UsageError) as error:
        evaluate.export(file, format, tmp_path / "out", dtype=dtype, index=index)
    assert str(error.value) == line


def test_usearch_has_no_flat_index(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "find_spec", lambda name: name)
    with pytest.raises(UsageError, match=r"^--index: flat: usearch has graphs only"):
        evaluate.export(file, "usearch", tmp_path / "out", index="flat")


def test_float16_files_are_read_back_rounded(table: Vectors, file: Path, tmp_path: Path,
                                             monkeypatch: pytest.MonkeyPatch,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "v.safetensors"
    monkeypatch.setattr("sys.argv", ["embtrain", "export", str(file), "--format", "safetensors", "--dtype", "float16",
                                     "--out", str(out)])
    assert cli.run() == 0
    back = vectors.read(out)
    assert back.words == table.words and np.array_equal(back.table, table.table.astype(np.float16).astype(np.float32))
    with safe_open(out, "numpy") as stored:
        assert stored.get_tensor("vectors").dtype == np.float16
        kept = json.loads(stored.metadata()["kept_neighbours"])
    share = measure(table, search_index.exact_search(back)).share
    assert kept == {"share": share, "neighbours": 10, "words": 1_000} and 0.99 < share < 1
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n"
    assert printed.err == f"{out}: keeps {share:.2%} of the 10 nearest neighbours of 1,000 words\n"
    out.write_bytes(out.read_bytes()[:-1] + b"?")
    with pytest.raises(DataError, match="damaged"):
        vectors.read(out)


def test_numbers_above_float16_are_refused(tmp_path: Path) -> None:
    large = Vectors(["a", "b"], np.array([[1.0, 2.0], [3.0, 70_000.0]]))
    vectors.write(tmp_path / "v.txt", large, "word2vec")
    with pytest.raises(DataError, match=r"word 2, 'b': its vector contains numbers above 65,504"):
        evaluate.export(tmp_path / "v.txt", "safetensors", tmp_path / "o.safetensors", dtype="float16")


def test_kept_neighbours_are_counted(table: Vectors, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = search_index.exact_search(table)

    nearest = brute_force(table, len(table), 11)

    def without(n: int) -> search_index.Search:
        """Return a search that finds the exact neighbours but n of them."""
        def search(queries: np.ndarray, k: int) -> np.ndarray:
            found = nearest[(queries @ table.unit.T).argmax(1)]
            found[:, 1:1 + n] = -1
            return found
        return search

    assert measure(table, exact) == measure(table, without(0)) == KeptNeighbours(1.0, 10, 1_000)
    assert measure(table, without(4)).share == pytest.approx(0.6)
    monkeypatch.setattr(search_index, "MAX_COSINES", V * 7)             # in several pieces
    assert measure(table, exact).share == 1.0
    assert measure(table, without(3)).share == pytest.approx(0.7)


def test_equally_near_neighbours_count(tmp_path: Path) -> None:
    same = Vectors([f"w{i}" for i in range(40)], np.ones((40, 3)))
    assert measure(same, lambda queries, k: np.tile(np.arange(39, 39 - k, -1), (len(queries), 1))).share == 1.0
    assert measure(Vectors(["a"], np.ones((1, 3))), lambda queries, k: np.zeros((1, k), np.int64)).words == 1
    assert str(KeptNeighbours(0.5, 1, 1)) == "keeps 50.00% of the 1 nearest neighbour of 1 word"
    for none in (KeptNeighbours(1.0, 0, 1), KeptNeighbours(1.0, 10, 0)):
        assert str(none) == "has no nearest neighbours to compare: it has one vector, or all are zeros"

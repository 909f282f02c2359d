"""Search indexes of vectors for other programs, and the share of neighbours that they keep.

    faiss     index.faiss: flat (IndexFlatIP, IndexScalarQuantizer) or a graph (IndexHNSWFlat, IndexHNSWSQ); the inner
              product of rows of length 1 is their cosine, so a query should have length 1 too
    usearch   index.usearch: a graph with metric cos and the row numbers as keys

words.txt names row i in line i, index.json has the settings, the sizes and the kept neighbours. flat compares a query
with every row; hnsw searches a graph [malkov2020]. int8 is the 8-bit scalar quantizer of the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import torch

import embtrain
from embtrain.common.errors import UsageError
from embtrain.common.files import write_atomically, write_json
from embtrain.common.progress import Progress
from embtrain.data.storage.skipped import counted
from embtrain.data.vectors.folders import write_lines
from embtrain.data.vectors.replaced_files import replace_files
from embtrain.data.vectors.vectors import Vectors

Format = Literal["faiss", "usearch"]
Dtype = Literal["float32", "float16", "int8"]
Kind = Literal["auto", "flat", "hnsw"]
FORMATS: tuple[Format, ...] = get_args(Format)
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
KINDS: tuple[Kind, ...] = get_args(Kind)
WORDS, METADATA = "words.txt", "index.json"
MAX_FLAT = 100_000                       # words of a flat index with `auto`; one query takes a few milliseconds there
LINKS, BUILD, SEARCH = 32, 128, 64       # edges of a node, and candidates while building and searching (M, ef)
N_QUERIES, N_NEIGHBOURS = 1_000, 10      # of the kept neighbours
TIE = 1e-6                               # difference of cosines below which two neighbours are equally near
MAX_COSINES = 1 << 24                    # computed at once
SEARCHED_AT_ONCE = 1 << 7                # words that are looked up at once, between two lines of progress
ADDED_AT_ONCE = 1 << 14                  # vectors that an index receives at once, between two lines of progress

Search = Callable[[np.ndarray, int], np.ndarray]  # rows (n, D) of length 1, k -> row numbers (n, k); -1: none found


@dataclass(frozen=True)
class KeptNeighbours:
    """The share of the nearest neighbours by exact float32 cosine that are still found."""

    share: float
    neighbours: int   # of each word
    words: int        # the most frequent ones, without those whose vectors are zeros

    def __str__(self) -> str:
        if not self.neighbours or not self.words:
            return "has no nearest neighbours to compare: it has one vector, or all are zeros"
        neighbours = counted(self.neighbours, "nearest neighbour", "nearest neighbours")
        return f"keeps {self.share:.2%} of the {neighbours} of {counted(self.words, 'word', 'words')}"


def write(folder: Path, vectors: Vectors, format: Format, dtype: Dtype, kind: Kind) -> KeptNeighbours:
    """Write an index with its words into a folder, and measure it as it is read back.

    Raises UsageError if the library is not installed, or has no index of this kind; DataError if a word cannot be
    written.
    """
    if find_spec(format) is None:
        raise UsageError(f"--format: {format}: {format} is not installed; pip install 'embtrain[{format}]'")
    if format == "usearch" and kind == "flat":
        raise UsageError("--index: flat: usearch has graphs only, which it can search exactly too (exact=True); leave "
                         "it at auto")
    if kind == "auto":
        kind = "hnsw" if format == "usearch" or len(vectors) > MAX_FLAT else "flat"
    build, load = (_faiss_bytes, _load_faiss) if format == "faiss" else (_usearch_bytes, _load_usearch)
    package = {"faiss": "faiss-cpu"}.get(format, format)
    with replace_files(folder, f"index.{format}") as folder:
        write_lines(folder / WORDS, vectors.words)
        path = folder / f"index.{format}"
        with write_atomically(path) as file:
            file.write(build(vectors.unit, dtype, kind))
        kept = measure(vectors, load(path))
        write_json(folder / METADATA, {
            "library": f"{package} {version(package)}", "index": kind, "dtype": dtype, "metric": "cosine",
            "words": len(vectors), "dim": vectors.dim, "kept_neighbours": asdict(kept),
            "embtrain_version": embtrain.__version__})
    return kept


def measure(vectors: Vectors, search: Search) -> KeptNeighbours:
    """Return the share of the nearest neighbours of the first words that `search` finds.

    A word that is as near as the last of the exact neighbours counts as one of them. Vectors of zeros are left out,
    because they have no direction.
    """
    queries = np.flatnonzero(vectors.unit[:N_QUERIES].any(1))
    n, k = len(queries), min(N_NEIGHBOURS, len(vectors) - 1)
    if n * k == 0:
        return KeptNeighbours(1.0, k, n)
    n_kept = 0
    with Progress("measuring neighbours", n, "words") as progress:
        for start in range(0, n, SEARCHED_AT_ONCE):
            rows = queries[start:start + SEARCHED_AT_ONCE]
            found = search(vectors.unit[rows], k + 1)                      # (r, k + 1)  one may be the word itself
            n_kept += sum(_n_kept(vectors.unit, *part, k) for part in _split(rows, found, len(vectors)))
            progress.add(len(rows))
    return KeptNeighbours(n_kept / (n * k), k, n)


def _split(rows: np.ndarray, found: np.ndarray, n_words: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield parts of rows (r,) and their neighbours (r, ·) whose cosines with all words fit in memory."""
    n_parts = -(-len(rows) // max(1, MAX_COSINES // n_words))
    return zip(np.array_split(rows, n_parts), np.array_split(found, n_parts), strict=True)


def _n_kept(unit: np.ndarray, rows: np.ndarray, found: np.ndarray, k: int) -> int:
    """Count the neighbours in found (r, ·) of rows (r,) of unit (V, D) that are among their k nearest."""
    cosine = unit[rows] @ unit.T                                           # (r, V)
    cosine[np.arange(len(rows)), rows] = -np.inf
    least = np.partition(cosine, -k, axis=1)[:, -k] - TIE                  # (r,)  of the k exact neighbours
    ids = ([number for number in of_row if number not in (row, -1)][:k]
           for row, of_row in zip(rows.tolist(), found.tolist(), strict=True))
    return sum(int((cosine[i, of_row] >= least[i]).sum()) for i, of_row in enumerate(ids))


def exact_search(vectors: Vectors) -> Search:
    """Return the exact search by cosine over the rows of `vectors`."""
    def search(queries: np.ndarray, k: int) -> np.ndarray:
        unit, step = vectors.unit, max(1, MAX_COSINES // len(vectors))
        return np.concatenate([np.argpartition(-(queries[start:start + step] @ unit.T), k - 1, axis=1)[:, :k]
                               for start in range(0, len(queries), step)])
    return search


def _faiss_bytes(unit: np.ndarray, dtype: Dtype, kind: Kind) -> bytes:
    """Return the file of a faiss index. unit: (V, D) float32."""
    import faiss

    D = unit.shape[1]
    metric, quantizer = faiss.METRIC_INNER_PRODUCT, faiss.ScalarQuantizer
    code = {"float16": quantizer.QT_fp16, "int8": quantizer.QT_8bit}.get(dtype)
    index: Any
    if kind == "flat":
        index = faiss.IndexFlatIP(D) if code is None else faiss.IndexScalarQuantizer(D, code, metric)
    else:
        index = faiss.IndexHNSWFlat(D, LINKS, metric) if code is None else faiss.IndexHNSWSQ(D, code, LINKS, metric)
        index.hnsw.efConstruction, index.hnsw.efSearch = BUILD, SEARCH
    index.train(unit)
    with Progress("building the index", len(unit), "vectors") as progress:
        for rows in _in_pieces(unit):
            index.add(rows)
            progress.add(len(rows))
    return cast(bytes, faiss.serialize_index(index).data)


def _load_faiss(path: Path) -> Search:
    import faiss

    index = faiss.read_index(str(path))
    return lambda queries, k: index.search(queries, k)[1]


def _usearch_bytes(unit: np.ndarray, dtype: Dtype, kind: Kind) -> bytes:
    """Return the file of a usearch index. unit: (V, D) float32."""
    from usearch.index import Index

    codes = {"float32": "f32", "float16": "f16", "int8": "i8"}
    index = Index(ndim=unit.shape[1], metric="cos", dtype=codes[dtype], connectivity=LINKS, expansion_add=BUILD)
    with Progress("building the index", len(unit), "vectors") as progress:
        for rows in _in_pieces(unit):
            keys = np.arange(progress.done, progress.done + len(rows), dtype=np.uint64)
            index.add(keys, rows, threads=torch.get_num_threads())
            progress.add(len(rows))
    return cast(bytes, index.save())


def _in_pieces(unit: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the vectors (n, D) that an index receives at once."""
    return (unit[start:start + ADDED_AT_ONCE] for start in range(0, len(unit), ADDED_AT_ONCE))


def _load_usearch(path: Path) -> Search:
    from usearch.index import Index

    index = Index.restore(str(path))
    index.expansion_search = SEARCH

    def search(queries: np.ndarray, k: int) -> np.ndarray:
        found = index.search(queries, k)
        keys = np.atleast_2d(found.keys).astype(np.int64)                  # a single query has one axis
        keys[np.arange(keys.shape[1]) >= np.atleast_1d(found.counts)[:, None]] = -1
        return keys
    return search

"""Random walks over a graph as a corpus: read from a file, or drawn here.

A walk v_1 v_2 ... v_L begins at each node `per_node` times. From v, with t the node before it, the next x is drawn from
the neighbours of v with                                                       (Grover and Leskovec, node2vec, KDD 2016)

    π(x | t, v) ∝ α(t, x) w_vx          α = 1/p  if d(t, x) = 0, that is x = t
                                            1    if d(t, x) = 1: there is an edge from t to x
                                            1/q  if d(t, x) = 2

d(t, x) is the length of the shortest path from t to x. In a directed graph an edge from x to t alone does not make it 1
(the published code of the authors tests for that edge instead). p = q = 1 is DeepWalk (Perozzi et al., KDD 2014). x is
proposed with w_vx / Σ w and accepted with probability α / max(1, 1/p, 1/q), which is exact and needs no table of the
pairs of edges. After many rejections, as with large p and q where no x is near t, α w is computed for all neighbours
of v. A walk ends at a node without outgoing edges.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from embtrain.common.errors import DataError, read_error
from embtrain.common.progress import Progress
from embtrain.data.inventory import inventory
from embtrain.data.inventory.inventory import FileRules, Inventory
from embtrain.data.storage import npy
from embtrain.data.storage.cache import AppendableArray, Encoded, cache_location, load_or_build
from embtrain.data.storage.lines import is_comment
from embtrain.data.storage.skipped import number_files
from embtrain.data.text import corpus
from embtrain.data.text.corpus import Corpus, ReadingConfig, WindowsConfig
from embtrain.data.text.tokenize import Tokenizer
from embtrain.data.walks.edge_lists import (
    MATRIX_MARKET,
    Edges,
    edges_from_pairs as edges_from_pairs,
    read_graph,
    verdict,
)

Kind = Literal["walks", "graph"]
WALKS_PER_BATCH = 1 << 16  # walks drawn at once
MAX_TRIES = 500          # proposals for a step, or as many as v has neighbours; hardly a usual step needs more
MAX_TRIES_RARE = 50      # the same if some x are accepted with a probability below RARE
RARE = 0.01              # below the 1/16 of p and q between 1/4 and 4
GRAPH = 3                # incremented if graphs are read or walked differently: cached walks are then drawn again
PARTS = 1000             # units of consecutive walks, some of which are held out
SAMPLE_BYTES = 1 << 16   # bytes searched for a walk of more than three nodes
DESCRIPTION = ("walks or edges (.txt, .text, .tokens, .edges, .edgelist; compressed or not); give an .npy of walks by "
               "its own path, uncompressed")
FILE_RULES = FileRules("walks", DESCRIPTION, verdict, alone=True)
_NPY = b"\x93NUMPY"
_log = logging.getLogger("embtrain")


class _LinesConfig(ReadingConfig):
    """Settings of reading files of walks, a line each."""

    section: ClassVar[str] = "walks"
    lower: bool = False
    tokenizer: Tokenizer = "whitespace"


class WalksConfig(WindowsConfig):
    """Settings of walks: reading, drawing and windows."""

    section: ClassVar[str] = "walks"
    entry: ClassVar[str] = "node"
    format: Literal["auto", "walks", "graph"] = Field("auto", description="content of the file")
    per_node: int = Field(10, ge=1, le=10_000, description="walks that start at each node")
    length: int = Field(80, ge=2, le=100_000, description="nodes per walk")
    p: float = Field(1.0, gt=0, description="1/p: weight of returning to the previous node")
    q: float = Field(1.0, gt=0, description="1/q: weight of leaving the neighbourhood of the previous node")
    directed: bool = Field(False, description="edges with a direction")
    seed: int = Field(0, ge=0, description="seed of the walks, independent of the run's seed")
    min_count: int = Field(1, ge=1, description="minimum count of a node in the training walks")
    sample: float = Field(0.0, ge=0, le=1, description="threshold t of the subsampling of frequent nodes; 0: none")
    window: int = Field(10, ge=1, le=1000, description="nodes on each side of the centre")

    @property
    def keeps_words(self) -> bool:
        return self.min_count == 1


def load(where: list[Path], config: WalksConfig, cache: Path | None, name: str) -> Corpus:
    """Load the walks at `where`, or those drawn over the graph there. DataError if it is neither."""
    files = inventory.build_inventory(where, FILE_RULES, config.files)
    reads = _detect_kind(where, files) if config.format == "auto" else config.format
    if reads == "walks" and not _is_array(where):
        _warn_of_comments(files)
        lines = _LinesConfig(files=config.files)
        settings, read = corpus.plan_reading(where, "tokens", lines, config.max_sequence, cache, name, rules=FILE_RULES)
        return corpus.arrange(settings, lambda: regroup_walks(read()), config, cache, name)
    settings = {"reads": reads, "numpy": int(np.__version__.split(".")[0]), "max_sequence": config.max_sequence}
    build: Callable[[AppendableArray], Encoded]
    if reads == "walks":
        def build(out: AppendableArray) -> Encoded:
            return encode_array(where[0], config.max_sequence, out)
    else:
        files = files.without("valid", "test", reason="held-out edges; walks are drawn from the training edges")
        settings |= {"graph": GRAPH, **config.model_dump(include={"per_node", "length", "p", "q", "directed", "seed"})}
        def build(out: AppendableArray) -> Encoded:
            text = encode_drawn(read_graph(where, files, config.directed), config, out)
            return replace(text, warnings=number_files(text.warnings, places))
    settings, places = {"content": files.content(where), **settings}, [where[0], *files.paths()]
    key, folder = cache_location(cache, name, reads, settings)
    build = files.checked(build)
    return corpus.arrange({**settings, "files": files.tree(), "places": places},
                          lambda: regroup_walks(load_or_build(folder, key, build)), config, cache, name)


def regroup_walks(encoded: Encoded) -> Encoded:
    """Return a copy whose documents, the units that are held out, are walks.

    A unit is one walk, or as many consecutive walks of one part as give about PARTS units.
    """
    n = len(encoded.sequence) - 1
    starts, part = np.arange(0, n, max(1, -(-n // PARTS))), encoded.part
    if len(part):
        part_of_walk = np.repeat(part, np.diff(np.searchsorted(encoded.sequence, encoded.document)))     # (S,)
        starts = np.union1d(starts, np.flatnonzero(np.diff(part_of_walk)) + 1)
        part = part_of_walk[starts]
    document = encoded.sequence[np.append(starts, n)]
    return replace(encoded, document=document, part=part, facts=encoded.facts | {"documents": len(document) - 1})


def _is_array(where: list[Path]) -> bool:
    if len(where) != 1 or not where[0].is_file():
        return False
    with open(where[0], "rb") as file:
        return file.read(len(_NPY)) == _NPY


def _detect_kind(where: list[Path], files: Inventory) -> Kind:
    """Return walks for an array, or if one of the first lines has more than three nodes; else graph.

    Lines `a b {'weight': 3}`, as networkx writes edges with data, are a graph, however many blanks the data contain.
    """
    if _is_array(where):
        return "walks"
    for source, _ in files.sources():
        begin = source.stream.read(SAMPLE_BYTES)
        if begin.startswith(_NPY):
            raise DataError(f"{source.name}: is an .npy, which cannot be read compressed or from a folder; unpack it, "
                            "and give its path")
        head = begin.decode("utf-8-sig", "replace").split("\n")
        lines = [(number, fields) for number, line in enumerate(head[:-1] or head, 1)
                 if (fields := line.split()) and not is_comment(line)]
        longer = [(number, fields) for number, fields in lines if len(fields) > 3]
        if not longer or head[0].startswith(MATRIX_MARKET) or any(f[2].startswith("{") for _, f in longer):
            return "graph"                                   # its reader rejects other files
        if (short := sum(len(fields) in (2, 3) for _, fields in lines)) > len(longer):
            _log.warning("%s:%d: contains %d nodes, so this is read as walks, although %d of the first %d lines could "
                         "be edges; set walks.format: graph or walks", source.name, longer[0][0],
                         len(longer[0][1]), short, len(lines))
        return "walks"
    return "graph"


def _warn_of_comments(files: Inventory) -> None:
    """Warn of lines near the beginning of a file that look like comments: files of walks have none."""
    for source, _ in files.sources():
        head = source.stream.read(SAMPLE_BYTES).decode("utf-8-sig", "replace").split("\n")
        if numbers := [number for number, line in enumerate(head, 1) if is_comment(line)]:
            _log.warning("%s:%d: %s with a comment mark and a space, but a file of walks has no comments: words are "
                         "read as nodes; delete comment lines", source.name, numbers[0],
                         "1 line begins" if len(numbers) == 1 else f"{len(numbers):,} lines begin")


# --- reading walks ---------------------------------------------------------------------------------------------------

def encode_array(path: Path, max_sequence: int, out: AppendableArray) -> Encoded:
    """Encode an .npy file of integers (walks, nodes); -1 after the end of a walk that is shorter than others."""
    try:
        table = npy.load(path, "r")
    except (OSError, ValueError, EOFError) as error:
        raise read_error(path, error, f"is not a complete .npy file of numbers: {error}") from error
    if table.ndim != 2 or table.dtype.kind not in "iu" or 0 in table.shape:
        raise DataError(f"{path}: should be integers of two axes, walks and nodes, got {table.dtype} {table.shape}")
    rows = max(1, (1 << 22) // table.shape[1])

    def pieces() -> Iterator[np.ndarray]:
        return (np.asarray(table[first:first + rows], dtype=np.int64) for first in range(0, len(table), rows))

    names = np.zeros(0, dtype=np.int64)
    for number, piece in enumerate(pieces()):
        ended = np.logical_or.accumulate(piece < 0, axis=1)
        wrong = (piece < -1) | (ended & (piece != -1))
        if len(bad := np.flatnonzero(wrong.any(axis=1))):
            raise DataError(f"{path}: row {number * rows + bad[0]:,}: nodes should be 0 or more, and -1 only after the "
                            "last node of a walk")
        names = np.union1d(names, piece[piece >= 0])
    if not len(names):
        raise DataError(f"{path}: contains no nodes")
    return _encoded((np.where(piece >= 0, np.searchsorted(names, piece), -1) for piece in pieces()),
                    [str(name) for name in names.tolist()], max_sequence, out)


def _encoded(pieces: Iterator[np.ndarray], names: list[str], max_sequence: int, out: AppendableArray) -> Encoded:
    """Encode walks as text: a walk is a sequence, longer ones are cut. pieces: (n, L), -1 after the end."""
    counts, lengths = np.zeros(len(names), dtype=np.int64), [np.zeros(0, dtype=np.int64)]
    for piece in pieces:                                                                  # (n, L), -1 after the end
        inside = piece >= 0
        ids = piece[inside].astype(np.int32)
        counts += np.bincount(ids, minlength=len(names))
        out.append(ids)
        size, parts = inside.sum(axis=1), -(-inside.shape[1] // max_sequence)
        if parts > 1:
            size = np.clip(size[:, None] - max_sequence * np.arange(parts), 0, max_sequence).reshape(-1)
        lengths.append(size[size > 0])
    sequence = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    facts = {"documents": 1, "tokens": out.n, "types": len(names)}
    return Encoded(out.array(), sequence, np.array([0, out.n], dtype=np.int64), counts, names, facts)


# --- drawing walks ---------------------------------------------------------------------------------------------------

def encode_drawn(graph: Edges, config: WalksConfig, out: AppendableArray) -> Encoded:
    """Draw walks over the graph, and encode them."""
    return replace(_encoded(draw_walks(graph, config), graph.names, config.max_sequence, out), warnings=graph.warnings)


def draw_walks(graph: Edges, config: WalksConfig) -> Iterator[np.ndarray]:
    """Draw `per_node` walks from each node, the nodes in random order: yield (n, length), -1 after the end."""
    n = len(graph.names)
    with Progress("drawing walks", config.per_node * n, "walks") as progress:
        for turn in range(config.per_node):
            random = np.random.default_rng(np.random.SeedSequence([config.seed, turn]))
            order = random.permutation(n)
            for first in range(0, n, WALKS_PER_BATCH):
                yield _draw_batch(graph, order[first:first + WALKS_PER_BATCH], config, random)
                progress.add(len(order[first:first + WALKS_PER_BATCH]))


def _draw_batch(graph: Edges, begin: np.ndarray, config: WalksConfig, random: np.random.Generator) -> np.ndarray:
    """Draw a walk from each node of `begin`, (n,): (n, length)."""
    table = np.full((len(begin), config.length), -1, dtype=np.int64)
    table[:, 0] = begin
    for i in range(1, config.length):
        active = np.flatnonzero(table[:, i - 1] >= 0)
        v = table[active, i - 1]
        has_next = graph.start[v + 1] > graph.start[v]
        active, v = active[has_next], v[has_next]
        if not len(active):
            break
        table[active, i] = _next_nodes(graph, v, table[active, i - 2] if i > 1 else None, config, random)
    return table


def _next_nodes(graph: Edges, v: np.ndarray, t: np.ndarray | None, config: WalksConfig, random: np.random.Generator
          ) -> np.ndarray:
    """Draw the node after each v, (n,); t: the nodes before v, (n,), None at the first step."""
    x = graph.propose(v, random)
    if t is None or config.p == config.q == 1:
        return x
    factors = 1.0, 1 / config.p, 1 / config.q
    max_factor = max(factors)
    max_tries = MAX_TRIES if min(factors) >= RARE * max_factor else MAX_TRIES_RARE
    n_neighbours = graph.start[v + 1] - graph.start[v]
    open_rows = np.flatnonzero(n_neighbours > 1)                 # the others have one neighbour
    for n_tries in itertools.count():
        # Rows that have cost as many tries as v has neighbours: at most twice the cost of the better of both draws.
        if n_tries >= max_tries and (is_due := n_neighbours[open_rows] <= n_tries).any():
            due, open_rows = open_rows[is_due], open_rows[~is_due]
            x[due] = _choose(graph, v[due], t[due], config, random)
        if not len(open_rows):
            break
        u, far = random.random(len(open_rows)) * max_factor, 1 / config.q
        back = x[open_rows] == t[open_rows]
        accepted = u < np.where(back, 1 / config.p, min(1.0, far))
        undecided = np.flatnonzero(~back & ~accepted & (u < max(1.0, far)))    # look up t's neighbours only for these
        near = graph.has(t[open_rows[undecided]], x[open_rows[undecided]])
        accepted[undecided] = u[undecided] < np.where(near, 1.0, far)
        open_rows = open_rows[~accepted]
        x[open_rows] = graph.propose(v[open_rows], random)
    return x


def _choose(graph: Edges, v: np.ndarray, t: np.ndarray, config: WalksConfig, random: np.random.Generator) -> np.ndarray:
    """Draw the node after each v with t before it, all (n,), from α w of all neighbours."""
    def factor(row: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.where(x == t[row], 1 / config.p, np.where(graph.has(t[row], x), 1.0, 1 / config.q))
    return graph.choose(v, factor, random)

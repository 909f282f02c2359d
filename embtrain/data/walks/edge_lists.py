"""Edge lists: lines `a b` or `a b weight`, read into the neighbours of each node.

A line whose first word is only `#` or `%` is a comment. It is skipped, counted and reported. `#tag` names a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from embtrain.common.errors import DataError
from embtrain.data.formats.running_text import text_verdict
from embtrain.data.formats.table_rows import to_number
from embtrain.data.inventory.inventory import Inventory
from embtrain.data.storage.containers import Source
from embtrain.data.storage.lines import Comments, is_comment, read_nonblank_lines
from embtrain.data.storage.skipped import Skipped

MARKS = ("#", "%", "//", ";")                   # comment marks of other programs
MATRIX_MARKET = "%%MatrixMarket"
EDGES_AT_ONCE = 1 << 20                         # edges whose weights are in memory; those of one node, if more


@dataclass(frozen=True)
class Edges:
    """A graph: the neighbours of node v are to[start[v]:start[v + 1]], ascending."""

    names: list[str]            # V
    start: np.ndarray           # (V+1,) int64
    to: np.ndarray              # (E,) int64
    key: np.ndarray             # (E,) int64  v V + to, ascending
    share: np.ndarray | None    # (E,) float64  Σ of a node's weights up to and including each edge, over its total;
                                #               None: all weights are equal
    warnings: tuple[str, ...] = ()  # warnings of the reader

    def propose(self, v: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draw a neighbour of each v by the edge weights; v, result: (n,)."""
        first, last, u = self.start[v], self.start[v + 1] - 1, random.random(len(v))
        if self.share is None:
            return self.to[first + np.minimum((u * (last - first + 1)).astype(np.int64), last - first)]
        while len(open_rows := np.flatnonzero(first < last)):    # bisection, all nodes at once
            middle = (first[open_rows] + last[open_rows]) >> 1
            beyond = self.share[middle] <= u[open_rows]
            first[open_rows] = np.where(beyond, middle + 1, first[open_rows])
            last[open_rows] = np.where(beyond, last[open_rows], middle)
        return self.to[first]

    def choose(self, v: np.ndarray, factor: Callable[[np.ndarray, np.ndarray], np.ndarray], random: np.random.Generator
               ) -> np.ndarray:
        """Draw a neighbour x of each v in proportion to its edge weight times a factor; v, result: (n,).

        factor: of edges (E',), from the index of each edge's node in v and its x, both (E',). At least one factor of a
        node is positive. All edges of v are examined, EDGES_AT_ONCE at a time.
        """
        n_edges, result = self.start[v + 1] - self.start[v], np.empty_like(v)
        batch = np.cumsum(n_edges) // EDGES_AT_ONCE
        for rows in np.split(np.arange(len(v)), np.flatnonzero(np.diff(batch)) + 1):
            size = n_edges[rows]
            begin, row = np.cumsum(size) - size, np.repeat(rows, size)                       # (n',), (E',)
            edge = np.arange(len(row)) + np.repeat(self.start[v[rows]] - begin, size)
            weight, x = np.ones(len(row)), self.to[edge]
            if self.share is not None:
                weight = self.share[edge] - np.where(edge > self.start[v[row]], self.share[edge - 1], 0.0)
            # The minimum of exponential variables of rates w: the sums of an inverse CDF would round small w away.
            with np.errstate(divide="ignore"):
                time = random.standard_exponential(len(row)) / (weight * factor(row, x))
            is_first = time == np.repeat(np.minimum.reduceat(time, begin), size)
            result[row[is_first]] = x[is_first]
        return result

    def has(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return whether there is an edge from each a to its b; all (n,)."""
        key = a * len(self.names) + b
        position = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return self.key[position] == key


def verdict(name: str) -> str:
    """Return whether a file of a folder may contain edges or walks, as `FileRules.verdict`."""
    return "" if name.lower().endswith((".edges", ".edgelist")) else text_verdict(name)


def read_graph(where: list[Path], files: Inventory, directed: bool) -> Edges:
    """Read the graph of some files. A repeated edge counts once, with a warning.

    Raises DataError for a line that is not an edge, an edge with two weights, and files without edges.
    """
    index: dict[str, int] = {}
    ends: list[int] = []
    weights: list[float] = []
    comments, marked = Comments(), dict[int, str]()         # marked: leading lines of files that may be comments
    for source, _ in files.sources():
        leading = True
        for number, fields in edge_lines(source, comments):
            weight = to_number(fields[2]) if len(fields) == 3 else 1.0
            if len(fields) not in (2, 3) or weight is None or not 0 < weight < float("inf"):
                raise DataError(f"{source.name}:{number}: expected two nodes and optionally a weight above 0, found "
                                f"{' '.join(fields)[:80]!r}; {_remedy(fields)}")
            leading = leading and fields[0].startswith(MARKS)
            if leading:
                marked[len(weights)] = f"{source.name}:{number}"
            ends += [index.setdefault(fields[0], len(index)), index.setdefault(fields[1], len(index))]
            weights.append(weight)
    if not weights:
        raise DataError(f"{where[0]}: contains no edges{'; all of its lines are comments' if comments.n else ''}")
    pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
    times = np.bincount(pairs.ravel(), minlength=len(index))
    suspects = [place for line, place in marked.items() if (times[pairs[line]] == 1).all()]
    warnings = comments.warnings() + tuple(f"{place}: is read as an edge, but its nodes occur in no other line; if it "
                                           "is a comment, begin it with `#` and a space" for place in suspects)
    edges = edges_from_pairs(list(index), pairs, np.array(weights), directed, str(where[0]))
    return replace(edges, warnings=warnings + _repeated_line(where[0], len(pairs), edges, directed))


def _repeated_line(where: Path, n_read: int, edges: Edges, directed: bool) -> tuple[str, ...]:
    """Return a warning of the edges that repeat an earlier one; empty without any."""
    n_distinct = len(edges.key)
    if not directed:                                         # each edge is in the graph in both directions, a loop once
        n_distinct = (n_distinct + int((edges.key // len(edges.names) == edges.to).sum())) // 2
    one_edge = "" if directed else " (a b and b a are one edge, unless walks.directed is true)"
    return Skipped(n_read - n_distinct, str(where)).lines(f"edge repeats an earlier one{one_edge} and counts once",
                                                          f"edges repeat earlier ones{one_edge} and count once")


def edge_lines(source: Source, comments: Comments) -> Iterator[tuple[int, list[str]]]:
    """Yield (number, fields) of each line that is not a comment. DataError for a Matrix Market file."""
    for number, line in read_nonblank_lines(source):
        if line.startswith(MATRIX_MARKET):
            raise DataError(f"{source.name}:{number}: is a Matrix Market file, whose second line is a size, not an "
                            "edge; read it with scipy.io.mmread and write lines `a b` or `a b weight`")
        if is_comment(line):
            comments.add(f"{source.name}:{number}")
        else:
            yield number, line.split()


def edges_from_pairs(names: list[str], ends: np.ndarray, weights: np.ndarray, directed: bool, where: str
                     ) -> Edges:
    """Build the graph of pairs of ids, (E, 2), with weights, (E,). DataError if an edge has two weights."""
    n = len(names)
    if not directed:
        ends, weights = np.concatenate([ends, ends[:, ::-1]]), np.concatenate([weights, weights])
    keys, first, edge_of_pair = np.unique(ends[:, 0] * n + ends[:, 1], return_index=True, return_inverse=True)
    weight = weights[first]
    if len(bad := np.flatnonzero(weight[edge_of_pair] != weights)):
        a, b = (names[i] for i in ends[bad[0]])
        raise DataError(f"{where}: the edge {a} {b} has two weights, {weight[edge_of_pair[bad[0]]]:g} and "
                        f"{weights[bad[0]]:g}; if each direction has its own, set walks.directed: true")
    start = np.searchsorted(keys, np.arange(n + 1) * n)
    share = None if (weight == weight[0]).all() else _shares(weight, start)
    return Edges(names, start, keys % n, keys, share)


def _shares(weight: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return the cumulative weights, (E,), of each node's edges, divided by the node's total.

    One cumulative sum over the whole graph would round away a weight if another one anywhere is 2⁵³ times as large.
    Weights are first divided by the node's largest, so that no sum overflows.
    """
    share = np.ones(len(weight))                            # correct for a node with one edge
    for node in np.flatnonzero(np.diff(start) > 1).tolist():
        edges_of_node = slice(start[node], start[node + 1])
        sums = np.cumsum(weight[edges_of_node] / weight[edges_of_node].max())
        share[edges_of_node] = sums / sums[-1]
    return share


def _remedy(fields: list[str]) -> str:
    if fields[0].startswith(MARKS):
        return "if it is a comment, begin it with `#` and a space"
    if len(fields) == 1 and fields[0].count(",") in (1, 2):
        return "replace commas by spaces or tabs"
    return "networkx: write_edgelist(graph, path, data=False). If it contains walks, set walks.format: walks"

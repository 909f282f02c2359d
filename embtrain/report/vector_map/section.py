"""The section of a run's page with the map of its vectors and the neighbours of its most frequent entries."""

from __future__ import annotations

from embtrain.evaluate.words.neighbours import nearest_rows
from embtrain.report.load.run import RunRecord
from embtrain.report.render.document import ReportSection, VectorMap
from embtrain.report.vector_map.entries import Entries
from embtrain.report.vector_map.layout import layout

MAX_POINTS = 2000    # entries on the map
N_NEIGHBOURS = 10
KINDS = {"windows": "words", "language": "words", "translation": "target words", "walks": "nodes",
         "triples": "entities", "pairs": "concepts", "labels": "labels"}  # task -> its entries


def section(run: RunRecord, entries: Entries) -> ReportSection:
    kind = KINDS.get(str((run.identity or {}).get("task", "windows")), "entries")
    n = len(entries.names)
    positions, about = layout(entries.unit[:MAX_POINTS])
    near, cosines = nearest_rows(entries.unit, N_NEIGHBOURS)
    which = f"all {n:,}" if n == entries.n_table else f"the {n:,} most frequent"
    caption = (f"{about}. {len(positions):,} {kind} are on the map. Neighbours are by cosine, among {which} {kind}"
               + ("." if n == entries.n_table else f" of {entries.n_table:,}."))
    chosen = [*(run.neighbours.near if run.neighbours else ()), entries.names[0]]
    start = next(name for name in chosen if name in set(entries.names))
    return ReportSection("vectors", "Map and neighbours", [
        VectorMap(kind, entries.names, positions, near, cosines, entries.names.index(start), caption)])

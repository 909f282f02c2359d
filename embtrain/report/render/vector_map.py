"""The map of the vectors as SVG, and the box that finds neighbours by script.py.

All points are one path, which takes ten bytes each; the script finds the nearest one to the pointer. Names are written
next to the most frequent entries, as far as they do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from embtrain.report.format import cells
from embtrain.report.render.document import VectorMap
from embtrain.report.render.html_tags import text
from embtrain.report.render.json_data import encode, packed

WIDTH, HEIGHT, MARGIN = 1000, 760, 24
MAX_LABELS = 90
LARGE_LABELS = 24         # the first labels, which are also shown on a phone
LARGE, SMALL = 'font-size="15"', 'font-size="13" class="more"'
LETTER, LINE = 9.5, 19.0  # width and height of a letter
MAX_LETTERS = 22          # of a label
NONE = 65535              # in place of a neighbour


def vector_map(block: VectorMap) -> str:
    """The map, the box and the data of both, as HTML."""
    points = pixels(block.positions)
    data = {"names": list(block.names), "k": block.near.shape[1], "width": WIDTH, "start": block.start,
            "xy": packed(points, "<u2"), "near": packed(np.where(block.near < 0, NONE, block.near), "<u2"),
            "cosines": packed((100 * block.cosines).round(), "i1")}
    return f"""<div class="atlas">
<div id="map-finder" class="finder" hidden>
<label for="map-word">Neighbours of</label>
<input id="map-word" type="search" autocomplete="off" autocapitalize="off" spellcheck="false">
<p id="map-note" role="status"></p>
<ol id="map-list"></ol>
</div>
<div>
<div id="map" class="map" aria-label="Map of the {text(block.kind)}" aria-describedby="map-keys">{svg(block)}</div>
<p id="map-hover" class="hover" role="status"></p>
<p id="map-keys" class="note">{text(block.caption)} Point at a dot for its name; click it for its neighbours. With the
keyboard: the arrow keys go to the next dot, Enter shows its neighbours, Home goes to the most frequent entry.</p>
</div>
<script type="application/json" id="map-data">{encode(data)}</script>
</div>"""


def svg(block: VectorMap) -> str:
    points = pixels(block.positions)
    path = "".join(f"M{x} {y}h0" for x, y in points.tolist())
    labels = "".join(
        f'<text x="{x}" y="{y}" text-anchor="middle" fill="var(--ink)" {LARGE if i < LARGE_LABELS else SMALL}>'
        f"{text(name)}</text>"
        for i, (name, x, y) in enumerate(placed_labels(block.names, points)))
    about = f"Map of the {len(points)} most frequent {block.kind}"
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(about)}" '
            f'font-family="DejaVu Sans, sans-serif"><path d="{path}" fill="none" stroke="var(--series-1)" '
            f'stroke-width="4" stroke-linecap="round" stroke-opacity="0.45"></path>{labels}</svg>')


def pixels(positions: NDArray[np.float64]) -> NDArray[np.int64]:
    """Positions (m, 2) in the drawing, y downwards, as large as fits."""
    size = np.ptp(positions, axis=0)
    room = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    scale = float((room / np.where(size > 0, size, 1)).min())
    centre = (positions.max(0) + positions.min(0)) / 2
    placed = np.array([WIDTH, HEIGHT]) / 2 + (positions - centre) * scale * np.array([1, -1])
    return placed.round().astype(np.int64)


def placed_labels(names: Sequence[str], points: NDArray[np.int64]) -> list[tuple[str, int, int]]:
    """Names and their places, above their points, of the first entries whose names do not overlap earlier ones."""
    out: list[tuple[str, int, int]] = []
    boxes = np.empty((0, 4))                                # left, top, right, bottom
    for name, (x, y) in zip(names, points.tolist(), strict=False):
        label = name if len(name) <= MAX_LETTERS else f"{name[:MAX_LETTERS - 1]}…"
        half = cells(label) * LETTER / 2
        box = np.array([x - half, y - 6 - LINE, x + half, y - 6])
        is_apart = (boxes[:, 2] < box[0]) | (boxes[:, 0] > box[2]) | (boxes[:, 3] < box[1]) | (boxes[:, 1] > box[3])
        if is_apart.all() and box[0] >= 0 and box[2] <= WIDTH and box[1] >= 0:
            boxes = np.vstack([boxes, box])
            out.append((label, x, y - 8))
        if len(out) == MAX_LABELS:
            break
    return out

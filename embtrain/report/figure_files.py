"""The figures of a report as files: SVG in the light colours, and PDF or PNG of the same drawing by CairoSVG."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from embtrain.common.errors import UsageError
from embtrain.common.files import write_atomically
from embtrain.common.output_paths import check_kinds, check_output_folder
from embtrain.report.charts import strategies
from embtrain.report.comparison import page as comparison_page
from embtrain.report.format import cells
from embtrain.report.load import comparison, run
from embtrain.report.render import vector_map
from embtrain.report.render.css import LIGHT
from embtrain.report.render.document import Block, Collapsible, Figure, ReportDocument, VectorMap
from embtrain.report.render.html_tags import text
from embtrain.report.run import page as run_page
from embtrain.report.vector_map import entries

KINDS = ("svg", "pdf", "png")
FOLDER = "figures"
LEGEND_LINE, LEGEND_LETTER = 16.0, 6.4   # height of a line and width of a letter
MAX_NAME = 60        # characters of a file name, without its number and ending
PNG_SCALE = 3.0      # pixels per unit of the drawing, 216 dots an inch


def write(folder: Path, kinds: Sequence[str]) -> list[Path]:
    """Write the figures of a run or comparison into its folder `figures`; returns their paths.

    UsageError as `check` and `check_places`; DataError if the folder is damaged.
    """
    check(kinds)
    check_places(folder, kinds)
    if (folder / "results.json").is_file():
        document = comparison_page.document(comparison.read(folder))
    else:
        document = run_page.document(run.read(folder), entries.read(folder))
    paths: list[Path] = []
    for name, drawing in drawings(document):
        content = standalone(drawing)
        for kind in dict.fromkeys(kinds):
            path = folder / FOLDER / f"{name}.{kind}"
            path.parent.mkdir(exist_ok=True)
            with write_atomically(path) as file:
                file.write(_converted(content, kind))
            paths.append(path)
    return paths


def check(kinds: Sequence[str]) -> None:
    """Raise UsageError if a kind is unknown, or if CairoSVG is needed and not installed."""
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UsageError(f"--figures: {', '.join(unknown)}: unknown; choose from {', '.join(KINDS)}")
    if set(kinds) <= {"svg"}:
        return
    try:
        importlib.import_module("cairosvg")
    except (ImportError, OSError) as error:   # OSError: the cairo library is missing
        raise UsageError("--figures: pdf and png need CairoSVG and cairo: pip install cairosvg, or --figures svg"
                         ) from error


def check_places(folder: Path, kinds: Sequence[str]) -> None:
    """Raise an error, before anything is written, if the figures of a report in `folder` cannot be written.

    UsageError if `figures` is not a folder, or contains a folder with the ending of a kind: the names of the figures
    are known only when the report is. ResourceError if it is not writable. No error without kinds.
    """
    if kinds:
        check_output_folder(folder / FOLDER, "--figures")
    for kind in dict.fromkeys(kinds):
        check_kinds("file", sorted((folder / FOLDER).glob(f"*.{kind}")), "a report with figures", "--figures: ")


def drawings(document: ReportDocument) -> Iterator[tuple[str, str]]:
    """Yield a file name, without its ending, and the SVG of every drawing. Equal names are numbered."""
    counts: dict[str, int] = {}
    for section in document.sections:
        for name, drawing in _drawings(section.blocks):
            stem = re.sub(r"[^a-z0-9]+", "-", f"{section.key} {name}".lower()).strip("-")[:MAX_NAME]
            counts[stem] = counts.get(stem, 0) + 1
            yield stem if counts[stem] == 1 else f"{stem}-{counts[stem]}", drawing


def _drawings(blocks: Sequence[Block]) -> Iterator[tuple[str, str]]:
    for block in blocks:
        if isinstance(block, Figure):
            for drawing in block.drawings:
                yield block.name, with_legend(drawing, block.legend)
        elif isinstance(block, VectorMap):
            yield "map", vector_map.svg(block)
        elif isinstance(block, Collapsible):
            yield from _drawings(block.blocks)


def with_legend(drawing: str, legend: Sequence[tuple[str, int]]) -> str:
    """Append the legend, which a page shows as a list, below the drawing."""
    if not legend:
        return drawing
    view = re.match(r'<svg viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing)
    assert view is not None     # every chart of a comparison begins so
    width, height = float(view[1]), float(view[2])
    x, y, out = 4.0, height + LEGEND_LINE, ""
    for label, place in legend:
        length = 46 + LEGEND_LETTER * cells(label)
        if x > 4 and x + length > width:
            x, y = 4.0, y + LEGEND_LINE
        mark = strategies.swatch(place).replace("<svg ", f'<svg x="{x:g}" y="{y - 9:g}" width="34" height="12" ', 1)
        out += (f'{mark}<text x="{x + 40:g}" y="{y:g}" font-family="DejaVu Sans, sans-serif" font-size="10" '
                f'fill="var(--ink)">{text(label)}</text>')
        x += length
    drawing = drawing.replace(view[0], f'<svg viewBox="0 0 {width:g} {y + 6:g}"', 1)
    return f"{drawing.removesuffix('</svg>')}{out}</svg>"


def standalone(drawing: str) -> str:
    """Return an SVG file: with its namespace, its size, and colours in place of the variables of a page."""
    colours = dict(re.findall(r"(--[\w-]+):(#[0-9a-f]{6})", LIGHT))
    drawing = re.sub(r"var\((--[\w-]+)\)", lambda match: colours[match[1]], drawing)
    view = re.match(r'<svg [^>]*viewBox="[\d.-]+ [\d.-]+ ([\d.]+) ([\d.]+)"', drawing)
    size = f' width="{view[1]}pt" height="{view[2]}pt"' if view else ""
    return drawing.replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg"{size} ', 1) + "\n"


def _converted(content: str, kind: str) -> bytes:
    if kind == "svg":
        return content.encode()
    cairosvg = importlib.import_module("cairosvg")
    if kind == "pdf":
        return bytes(cairosvg.svg2pdf(bytestring=content.encode()))
    return bytes(cairosvg.svg2png(bytestring=content.encode(), scale=PNG_SCALE, background_color="white"))

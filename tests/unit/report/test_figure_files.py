"""Figures as files: every drawing, complete without the page, under names that are safe."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import pytest
from helpers.comparisons import comparison
from helpers.pages import HOSTILE
from helpers.run_folders import run_folder, run_with_vectors

from embtrain.common.errors import UsageError
from embtrain.report import figure_files
from embtrain.report.charts import strategies, svg
from embtrain.report.render.document import Collapsible, Figure, ReportDocument, ReportSection

DRAWING = '<svg viewBox="0 0 100 50" role="img" aria-label="x"><path stroke="var(--series-2)" d="M0 0h9"></path></svg>'


@pytest.mark.usefixtures("empty_charts")
def test_a_run_has_one_file_per_drawing_and_the_map(tmp_path: Path) -> None:
    folder = run_folder(run_with_vectors(tmp_path / "run", [f"<e{i}>" for i in range(60)]))
    names = [path.name for path in figure_files.write(folder, ["svg", "svg"])]
    assert {"curves-training-loss.svg", "more-training-loss.svg", "vectors-map.svg",
            "source-entropy-of-the-generator-nats.svg", "scores-log-likelihood.svg"} <= set(names)
    assert len(names) == len(set(names)) > 10
    for name in names:
        text = (folder / "figures" / name).read_text(encoding="utf-8")
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.get("width", "").endswith("pt")
        assert "var(" not in text and "<script" not in text


def test_the_curves_of_a_comparison_have_their_legend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    almost_empty = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 90 60"><g/></svg>'
    monkeypatch.setattr(svg.FigureCanvasSVG, "print_svg", lambda canvas, file, metadata: file.write(almost_empty))
    folder = comparison(tmp_path / "compared", ["sgns", "nce"], 2, 2, 2)
    paths = figure_files.write(folder, ["svg"])
    curve = next(path for path in paths if path.name.startswith("curves-"))
    texts = [element.text for element in ElementTree.parse(curve).getroot() if element.tag.endswith("text")]
    assert texts == ["sgns", "nce"]
    assert [path.name for path in paths] == [path.name for path in figure_files.write(folder, ["svg"])]


def test_names_are_safe_and_different() -> None:
    figures = [Figure(name, "", [DRAWING, DRAWING], None) for name in (*HOSTILE, "../../etc/passwd", "a", "A")]
    document = ReportDocument("x", "x", [], [ReportSection("key", "x", [figures[0], Collapsible("x", figures[1:])])])
    names = [name for name, _ in figure_files.drawings(document)]
    assert len(set(names)) == len(names) == 2 * len(figures)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") and name.startswith("key") for name in names)


def test_a_long_legend_takes_several_lines_of_escaped_text() -> None:
    drawing = figure_files.with_legend(DRAWING, [("<b>", 0), ("second", 1), ("third", 9)])
    root = ElementTree.fromstring(figure_files.standalone(drawing))
    lines = {float(element.get("y", 0)) for element in root if element.tag.endswith("text")}
    assert len(lines) == 3 and float(root.get("viewBox", "").split()[3]) > max(lines) > 50
    assert [element.text for element in root if element.tag.endswith("text")] == ["<b>", "second", "third"]
    assert figure_files.with_legend(DRAWING, []) == DRAWING


def test_colours_are_those_of_the_light_page() -> None:
    assert 'stroke="#b8471b"' in figure_files.standalone(DRAWING)


def test_unknown_kinds_and_a_missing_converter_are_one_line_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                   ) -> None:
    with pytest.raises(UsageError, match="--figures: gif: unknown; choose from svg, pdf, png"):
        figure_files.write(tmp_path, ["svg", "gif"])
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(UsageError, match="pdf and png need CairoSVG and cairo"):
        figure_files.write(tmp_path, ["pdf"])


@pytest.mark.usefixtures("empty_charts")
def test_pdf_and_png_are_the_converted_svg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    converter = ModuleType("cairosvg")
    converter.svg2pdf = lambda bytestring: b"%PDF" + bytestring                                  # type: ignore
    converter.svg2png = lambda bytestring, scale, background_color: b"PNG" + bytestring          # type: ignore
    monkeypatch.setitem(sys.modules, "cairosvg", converter)
    folder = run_folder(tmp_path / "run", scores=None)
    paths = figure_files.write(folder, ["svg", "png", "pdf"])
    drawn, png, pdf = (next(path for path in paths if path.suffix == f".{kind}").read_bytes() for kind in
                     ("svg", "png", "pdf"))
    assert (png, pdf) == (b"PNG" + drawn, b"%PDF" + drawn)


@pytest.mark.parametrize(("means", "smallest", "is_log"), [
    ([1, 10], 0.5, True), ([1, 9.9], 0.5, False), ([1, 10], 0.0, False), ([-1, 10], -1, False), ([3], 3, False)])
def test_scores_that_differ_by_orders_have_a_log_axis(means: list[float], smallest: float, is_log: bool) -> None:
    assert strategies.differ_by_orders(means, smallest) is is_log
    if is_log:
        marks = [strategies.Mark(str(mean), i, [mean], mean, costs=[1.0], cost=1.0) for i, mean in enumerate(means)]
        for drawn in (strategies.spread("a", "x", marks), strategies.cost("b", "x", marks, [0])):
            assert ">log scale</text>" in drawn

"""Reports can be used with a keyboard and a screen reader: order of headings, names, roles and contrast."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.comparisons import comparison
from helpers.run_folders import run_folder, run_with_vectors

from embtrain import report
from embtrain.report.comparison import page as comparison_page
from embtrain.report.render import css

pytestmark = pytest.mark.usefixtures("empty_charts_of_module")
Attributes = dict[str, str | None]


class Tags(HTMLParser):
    """All start tags with their attributes, and the text inside each element of some kinds."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, Attributes]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.texts.append((tag, ""))

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] = (self.texts[-1][0], self.texts[-1][1] + data)


@pytest.fixture(scope="module", params=["run", "comparison"])
def tags(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tags:
    folder = tmp_path_factory.mktemp("page") / "folder"
    if request.param == "run":
        run_with_vectors(folder, [f"e{i}" for i in range(60)])
        path = report.write(run_folder(folder))
    else:
        path = comparison_page.write(comparison(folder, failed=["nce-seed3"]))[0]
    return Tags(path.read_text(encoding="utf-8"))


def test_headings_descend_one_level_at_a_time(tags: Tags) -> None:
    levels = [int(tag[1]) for tag, _ in tags.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(level <= before + 1 for before, level in pairwise(levels)), levels
    assert all(text.strip() for tag, text in tags.texts if tag in ("h1", "h2", "h4"))


def test_the_page_has_a_language_landmarks_and_a_title(tags: Tags) -> None:
    names = [tag for tag, _ in tags.tags]
    assert ("html", {"lang": "en"}) in tags.tags and names.count("main") == names.count("header") == 1
    assert all(attributes.get("aria-label") for tag, attributes in tags.tags if tag == "nav")
    assert any(tag == "title" and text for tag, text in tags.texts)


def test_the_tab_order_is_the_reading_order(tags: Tags) -> None:
    assert {attributes.get("tabindex", "0") for _, attributes in tags.tags} == {"0"}
    assert all(attributes.get("type") == "button" for tag, attributes in tags.tags if tag == "button")


def test_scrolling_parts_have_names_and_can_be_focused(tags: Tags) -> None:
    scrolling = [attributes for _, attributes in tags.tags if attributes.get("class") == "scroll"]
    assert scrolling and all(a.get("tabindex") == "0" and a.get("role") == "group" and a.get("aria-label")
                             for a in scrolling)
    assert all(a.get("tabindex") == "0" for tag, a in tags.tags if tag == "pre")


def test_tables_have_heads_with_a_scope_and_drawings_have_names(tags: Tags) -> None:
    assert all(a.get("scope") in ("col", "row", "rowgroup") for tag, a in tags.tags if tag == "th")
    drawings = [a for tag, a in tags.tags if tag == "svg"]
    assert drawings and all(a.get("aria-hidden") == "true" or (a.get("role") == "img" and a.get("aria-label"))
                            for a in drawings)


def test_every_field_has_a_label_and_references_resolve(tags: Tags) -> None:
    ids = {a["id"] for _, a in tags.tags if "id" in a}
    labels = {a.get("for") for tag, a in tags.tags if tag == "label"}
    assert all(a.get("id") in labels for tag, a in tags.tags if tag == "input")
    assert labels <= ids and {a["aria-describedby"] for _, a in tags.tags if "aria-describedby" in a} <= ids
    summaries = [i for i, (tag, _) in enumerate(tags.tags) if tag == "summary"]
    assert summaries and all(tags.texts[i][1].strip() or tags.texts[i + 1][0] == "h2" for i in summaries)


# --- contrast (WCAG 2.2, 1.4.3 and 1.4.11) ---------------------------------------------------------------------------

def luminance(colour: str) -> float:
    channels = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_by_hand() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("theme", [css.LIGHT, css.DARK])
def test_text_has_a_contrast_of_4_5_and_lines_of_3(theme: str) -> None:
    colours = dict(re.findall(r"--([\w-]+):(#[0-9a-f]{6})", theme))
    for background in ("paper", "shade"):
        for text in ("ink", "faint"):
            assert contrast(colours[text], colours[background]) >= 4.5, (text, background)
    series = [name for name in colours if name.startswith("series")]
    assert len(series) == 6 and all(contrast(colours[name], colours["paper"]) >= 3 for name in series)


def test_every_colour_of_the_style_sheet_is_a_variable() -> None:
    rules = css.STYLE.replace(css.LIGHT, "").replace(css.DARK, "")
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b", rules) == ["#fff"]   # paper in print


def test_a_page_that_is_read_in_order_has_its_results_first(tmp_path: Path) -> None:
    folder = run_folder(run_with_vectors(tmp_path / "run", [f"e{i}" for i in range(60)]))
    text = report.write(folder).read_text(encoding="utf-8")
    order = [text.index(part) for part in ('class="verdict"', "<h2>Scores", "<h2>Curves", "<h2>Map and neighbours",
                                           "<h2>How to reproduce", "<h2>Settings", '<details class="part">')]
    assert order == sorted(order)

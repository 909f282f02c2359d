"""Reference pages: every source, loss, model and key, with the contents of the registry and its docstring."""

from __future__ import annotations

import re

import pytest
from helpers.docs_scripts import script
from unit.docs.test_docs import PAGES as ALL_PAGES, all_keys, rows

import embtrain
import embtrain.nn
import embtrain.testing
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives

components = script("components")
PAGES = components.pages()


@pytest.mark.parametrize(("page", "kind", "section"), [
    ("sources.md", negatives, "negatives"), ("losses.md", losses, "loss"), ("models.md", models, "model")])
def test_every_component_has_a_section_with_its_first_line(page: str, kind: object, section: str) -> None:
    for name in kind.names():  # type: ignore[attr-defined]
        _, _, part = PAGES[page].partition(f"({section}-{name})=\n## `{name}`\n\n")
        assert part.strip() and not part.startswith(("#", "|")), name


def test_every_key_has_one_row_with_its_default() -> None:
    named = [cells[0].strip("`") for text in PAGES.values() for cells in rows(text) if cells[0].startswith("`")]
    sections = {key for key in all_keys() if not any(other.startswith(f"{key}.") for other in named)}
    assert sections - set(named) == set()
    assert "| `negatives.k` | `5` | integer |" in PAGES["sources.md"]
    assert "| `train.clip` | `null` | number or `null` |" in PAGES["settings.md"]
    assert "| `train.start` | `null` | text or `null` |" in PAGES["settings.md"]


def test_a_component_names_its_strategies_papers_and_equation() -> None:
    part = PAGES["sources.md"].partition("## `rff`\n")[2].partition("\n## ")[0]
    assert "Strategies: `rff`, `rff-leaf`, `rff-prior`." in part and r"Papers: [\[rawat2019\]](#rawat2019)." in part
    assert "```text\nφ(x) = D^{-1/2}" in part and "`negatives.directions`" in part and "`negatives.k`" not in part


@pytest.mark.parametrize(("page", "trait", "line"), [
    ("sources.md", "learns", "| `kbgan` | yes | cost |  |  |"),
    ("sources.md", "sharing_modes", "| `most_informative` | row | chooses for each row and its target |  |"),
    ("losses.md", "needs_q", "| `sampled_softmax` | all |  | drawn |  | masked | drawn |  |"),
    ("losses.md", "monotone", "| `logistic` | yes | yes | yes |")])
def test_traits_of_all_components_are_tabled_by_group(page: str, trait: str, line: str) -> None:
    traits, _, _ = PAGES[page].partition("## Traits\n")[2].partition("\n## ")
    part = next(text for text in traits.split("### ") if f"| `{trait}` |" in text)
    assert line in part
    assert all(f"\n| `{name}` | " in part for name in (negatives if page == "sources.md" else losses).names())


def test_every_public_name_is_on_the_page_of_the_interface() -> None:
    page = ALL_PAGES["docs/reference/api.md"]
    documented = set(re.findall(r"^\.\. auto(?:class|function|exception):: ([\w.]+)$", page, re.MULTILINE))
    for module in (embtrain, embtrain.nn, embtrain.testing):
        public = {f"{module.__name__}.{name}" for name in module.__all__} - {"embtrain.__version__"}
        missing = {name for name in public if name.replace("embtrain.Run", "embtrain.experiment.Run") not in documented}
        assert missing == set()


def test_markup_characters_are_escaped() -> None:
    assert components._prose("a_b * c\n <eos> `x_y*`") == r"a\_b \* c \<eos> `x_y*`"

"""The pages that programs read: they are current, their links exist, and their recipes run on tiny data."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.docs_scripts import DOCS, script
from helpers.in_process import in_process, small_text

from embtrain import cli

machine_pages = script("machine_pages")


@pytest.mark.parametrize("name", ["llms.txt", "SKILL.md"])
def test_the_pages_are_current(name: str) -> None:
    assert set(machine_pages.pages()) == {path.name for path in machine_pages.FOLDER.iterdir()}
    written = (machine_pages.FOLDER / name).read_text(encoding="utf-8")
    assert written == machine_pages.pages()[name], "run python docs/scripts/machine_pages.py"


def test_each_page_of_the_site_is_listed_once_with_its_title() -> None:
    links = re.findall(r"^- \[(.+?)\]\(([^)]+)\)", machine_pages.pages()["llms.txt"], re.MULTILINE)
    addresses = [address for _, address in links if address != "SKILL.md"]
    assert len(addresses) == len(set(addresses)) > 40
    missing = [address for address in addresses if "/registry/" not in address
               and not (DOCS / address).with_suffix(".md").is_file()]
    assert missing == []
    assert ("Use a trained run", "how-to/runs.html") in links


@pytest.mark.parametrize(("text", "sentence"), [
    ("# A\n\nYou have a text. More.\n", "You have a text."), ("# A\n\n| a table |\n", ""),
    ("# A\n\n(mark)=\n\nSee {doc}`the page <../b>` and {term}`source`. x", "See the page and source."),
    ("(a)=\n# A\n\nTwo\nlines, [linked](b.md): c", "Two lines, linked"), ("# A\n\n```sh\nx\n```\n", "")])
def test_the_first_sentence_is_prose(text: str, sentence: str) -> None:
    assert machine_pages._first_sentence(text) == sentence


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the data that the recipes name; cells of a comparison run in this process."""
    place = small_text(tmp_path_factory.mktemp("recipes"))
    (place / "graph.tsv").write_text("".join(f"{a}\tnext\t{b}\n" for a, b in itertools.pairwise("abcdefghijkabcdefga")))
    kinds = ["dog\tanimal", "cat\tanimal", "beagle\tdog", "poodle\tdog", "siamese\tcat", "animal\tthing", "tool\tthing",
             "hammer\ttool", "saw\ttool", "jigsaw\tsaw"]
    (place / "kinds.tsv").write_text("\n".join(kinds) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        in_process(patch, place)
        yield place


@pytest.mark.long
@pytest.mark.usefixtures("empty_charts")
def test_the_recipes_run_one_after_the_other(place: Path, monkeypatch: pytest.MonkeyPatch,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    """One test, because a recipe reads what those before it wrote, and workers share the tests of a file."""
    for recipe in machine_pages.RECIPES:
        for name, text in recipe.files:
            (place / name).write_text(text)
        for line in recipe.lines:
            words = shlex.split(line)
            monkeypatch.setattr(sys, "argv", words)
            code = cli.run()
            out, err = capsys.readouterr()
            assert (code, words[0]) == (0, "embtrain"), (recipe.title, line, err)
            if "--json" in words:
                assert json.loads(out), (recipe.title, line)

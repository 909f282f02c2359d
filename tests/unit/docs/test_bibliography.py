"""Bibliography: every key, and every citation by authors and year, resolves to one of its entries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.docs_scripts import script
from helpers.looped import looped

citations = script("citations")
cited_keys, cited_authors, entries = citations.cited_keys, citations.cited_authors, citations.entries
ROOT = Path(__file__).resolve().parents[3]
PAGE = citations.PAGE.read_text(encoding="utf-8")
SAMPLE = ("_build", "results/generated", "reference/registry")
SUFFIXES = (".py", ".md", ".yaml", ".h", ".cpp")


def files() -> Iterator[Path]:
    yield ROOT / "README.md"
    for folder in ("embtrain", "docs", "configs"):
        yield from (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES
                    and path != citations.PAGE and not any(path.is_relative_to(ROOT / "docs" / entry)
                                                           for entry in SAMPLE))


def test_every_entry_has_one_key_authors_a_title_and_its_year() -> None:
    keys = entries()
    assert len(set(keys)) == len(keys) > 80 and keys[1:] == sorted(keys[1:])
    for key in keys[1:]:
        entry = " ".join(PAGE.split(f"({key})=\n")[1].split("\n\n")[0].split())
        assert re.fullmatch(rf"\*\*\[{key}\]\*\*†? [^*]+\. \*[^*]+\*[.]? .*\.", entry), entry
        authors, _, rest = entry.partition(". *")
        assert key[-5:-1] in rest or key[-4:] in rest, entry
        first = authors.partition("]**")[2].lstrip("† ").split(",")[0].removesuffix(" and others")
        last_name = re.sub(r"^.*\s(?=[dD]e\s)|^.*\s", "", first)
        assert citations.plain_key(last_name).endswith(key.rstrip("abc")[:-4]), entry


def test_every_citation_resolves() -> None:
    known, unresolved = set(entries()), {}
    for path in files():
        text = path.read_text(encoding="utf-8")
        if missing := (cited_keys(text) | cited_authors(text)) - known:
            unresolved[path.relative_to(ROOT).as_posix()] = sorted(missing)
    assert unresolved == {}


def test_the_bibliography_cites_only_its_own_keys() -> None:
    assert cited_keys(PAGE) == set(entries())


@pytest.mark.parametrize(("text", "keys"), [
    ("as in [nosuch2019]", {"nosuch2019"}), ("[ace2018b] and [x](y.md) and [link2019](page.md)", {"ace2018b"}),
    ("[nce_note]", {"nce_note"}), ("runs[2019], [2019]", set())])
def test_keys_are_found(text: str, keys: set[str]) -> None:
    assert cited_keys(text) == keys


@looped("text, keys", [
    ("(Rawat et al. 2019, eq. 4)", {"rawat2019"}), ("Kumar and\n# Tsvetkov (2019)", {"kumar2019"}),
    ("Duchi, Hazan and Singer 2011", {"duchi2011"}), ("De Cao and Aziz 2020", {"decao2020"}),
    ("de Brébisson and Vincent 2016", {"debrebisson2016"}), ("IWSLT 2016, NeurIPS 2019", set()),
    ("KBGAN, Cai and Wang 2018", {"cai2018"}), ("Kool, van Hoof and Welling 2019", {"kool2019"})])
def test_citations_by_name_are_found(text: str, keys: set[str]) -> None:
    assert cited_authors(text) == keys


def test_keys_link_to_the_bibliography_and_code_is_unchanged() -> None:
    page = "As in [rawat2019] and `[rawat2019]`.\n\n```sh\n[rawat2019]\n```\n\n    [rawat2019]\n"
    assert citations.linked(page) == page.replace("in [rawat2019]", r"in [\[rawat2019\]](#rawat2019)")

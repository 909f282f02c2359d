"""Whose the data are: every corpus and benchmark with its licence, and the results that rest on it."""

from __future__ import annotations

from raw import comparisons, sources, table

from embtrain.common import shipped
from embtrain.data.catalogue.recipes import KINDS, load_recipe


def made_licences() -> str:
    uses: dict[str, list[str]] = {}
    for found in comparisons():
        for source in sources(found):
            uses.setdefault(source, []).append(found.name)
    uses.setdefault("english-18m", []).append("skipgram-and-gensim")
    recipes = [load_recipe(kind, name) for kind in KINDS for name in shipped.names(kind)]
    return table(["data", "licence", "from", "results that rest on it"],
                 [[f"`{of.name}`", of.licence, of.homepage or "–", ", ".join(uses.get(of.name, ["–"]))]
                  for of in recipes])

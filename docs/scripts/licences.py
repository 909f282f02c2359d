"""Table of licences: every corpus and benchmark, and the results that depend on it."""

from __future__ import annotations

from raw import comparisons, sources, table

from embtrain.common import shipped
from embtrain.data.catalogue.recipes import KINDS, load_recipe


def licence_table() -> str:
    """Return a row for each recipe: name, licence, home page, results."""
    uses: dict[str, list[str]] = {}
    for found in comparisons():
        for source in sources(found):
            uses.setdefault(source, []).append(found.name)
    uses.setdefault("english-18m", []).append("skipgram-and-gensim")
    recipes = [load_recipe(kind, name) for kind in KINDS for name in shipped.names(kind)]
    return table(["data", "licence", "from", "results that depend on it"],
                 [[f"`{recipe.name}`", recipe.licence, recipe.homepage or "–", ", ".join(uses.get(recipe.name, ["–"]))]
                  for recipe in recipes])

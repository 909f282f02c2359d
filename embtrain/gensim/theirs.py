"""Names and modules of gensim without a counterpart here: under embtrain.gensim too, so that one prefix serves all."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any


def get_name(package: str, name: str) -> Any:
    """Return gensim's object of that name. Raises AttributeError if gensim has none.

    package: of embtrain.gensim, without `embtrain.`.
    """
    theirs = importlib.import_module(package)
    if not name.startswith("_"):
        if hasattr(theirs, name):
            return getattr(theirs, name)
        if importlib.util.find_spec(f"{package}.{name}"):     # e.g. gensim.downloader, which gensim does not import
            return importlib.import_module(f"{package}.{name}")
    raise AttributeError(f"module 'embtrain.{package}' has no attribute {name!r:.60}")


def add_modules() -> None:
    """Let `from embtrain.gensim.models.callbacks import X` find gensim's module. Call it after ours are imported."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("gensim."):
            sys.modules.setdefault(f"embtrain.{name}", module)

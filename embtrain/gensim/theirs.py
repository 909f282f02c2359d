"""Names and modules of gensim without a counterpart here: under embtrain.gensim too, so that one prefix serves all."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, ModuleType
from typing import Any

_PREFIX = "embtrain.gensim."
# gensim's training of a batch or an epoch: under our name, it would train with another source than the strategy's.
_TRAINING = {"train_batch_any", "train_batch_cbow", "train_batch_sg", "train_epoch_cbow", "train_epoch_sg"}


def get_name(package: str, name: str) -> Any:
    """Return gensim's object of that name. Raises AttributeError if gensim has none.

    package: of embtrain.gensim, without `embtrain.`.
    """
    theirs = importlib.import_module(package)
    if _is_shared(name) and hasattr(theirs, name):
        return getattr(theirs, name)
    raise AttributeError(f"module 'embtrain.{package}' has no attribute {name!r:.60}")


def names_for_star(package: str) -> list[str]:
    """Return the names that `from package import *` imports from gensim's package, and that `get_name` returns."""
    return [name for name in vars(importlib.import_module(package)) if _is_shared(name) and not name.startswith("_")]


def _is_shared(name: str) -> bool:
    return (not name.startswith("_") or name == "__version__") and name not in _TRAINING


def add_finder() -> None:
    """Let Python find modules of gensim under embtrain.gensim, before other finders do.

    The folder of `embtrain.gensim.corpora`, which is gensim's package, contains files: a finder of files would load a
    second module from each. A repeated call, after a reload, replaces the finder.
    """
    sys.meta_path[:] = [_Finder(), *(finder for finder in sys.meta_path if type(finder).__module__ != __name__)]


class _Finder(MetaPathFinder):
    """Finds `embtrain.gensim.X` that embtrain has no file for: the module object `gensim.X`."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
                  ) -> ModuleSpec | None:
        package = sys.modules.get(fullname.rpartition(".")[0]) if fullname.startswith(_PREFIX) else None
        if package is None or (package.__name__.startswith("embtrain.") and PathFinder.find_spec(fullname, path)):
            return None
        name = fullname.removeprefix("embtrain.")
        module = sys.modules.get(name)
        found = getattr(module, "__spec__", None) if module is not None else importlib.util.find_spec(name)
        if module is None and found is None:
            return None
        spec = ModuleSpec(fullname, _Loader(name), origin=getattr(found, "origin", None))
        spec.submodule_search_locations = getattr(found, "submodule_search_locations", None)
        return spec


class _Loader(Loader):
    """Loads a module of gensim under its own name. `__name__` and `__spec__` of the module remain gensim's."""

    def __init__(self, name: str):
        self.name = name

    def create_module(self, spec: ModuleSpec) -> None:
        importlib.import_module(self.name)  # here, because during `exec_module` the other name is an empty module

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = sys.modules[self.name]

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code for `python -m`."""
        loader: Any = importlib.util.find_spec(self.name).loader  # type: ignore[union-attr]
        return loader.get_code(self.name)

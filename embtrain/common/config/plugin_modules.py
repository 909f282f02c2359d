"""Imports files of EMBTRAIN_PLUGINS by the names of their modules.

A pickle refers to a class by module and name. A process that reads one, for example after a spawn, may not have read
the user's files yet. foreign_classes.py installs the importer; a pickle that begins with a class of embtrain, or with
one that has checks, imports it. Before another one, for example of a Config of a file, import embtrain.negatives.base.
"""

from __future__ import annotations

import importlib.util
import re
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from embtrain.common.errors import DataError
from embtrain.common.registry import PLUGIN_MODULE, PLUGINS, import_plugin, plugin_files, plugin_module

_NAME = re.compile(rf"{PLUGIN_MODULE}[0-9a-f]{{8}}_[^.]+")     # of `plugin_module`


class PluginImporter(Loader):
    """Item of sys.meta_path. The file may be in another folder than before: a process has one file of each name.

    Raises DataError if EMBTRAIN_PLUGINS has none of that name.
    """

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        """None for other names, for example of a package whose name has the same beginning."""
        return importlib.util.spec_from_loader(fullname, self) if _NAME.fullmatch(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        files = [path for path in plugin_files() if _without_folder(plugin_module(path)) == _without_folder(spec.name)]
        if not files:
            raise DataError(f"{PLUGINS}: lacks {_without_folder(spec.name)}.py, which defines a class of the object "
                            "that is loaded; add the path of that file")
        return import_plugin(max(files, key=lambda path: plugin_module(path) == spec.name))

    def exec_module(self, module: ModuleType) -> None:
        """Restore the spec of the file, which Python has replaced; the module is complete."""
        module.__spec__ = importlib.util.spec_from_file_location(module.__name__, module.__file__)


def _without_folder(module: str) -> str:
    """The file name in a module name, without the hash of the path."""
    return module.removeprefix(PLUGIN_MODULE).partition("_")[2]

"""The mirror that EMBTRAIN_DATA_MIRROR names: files at the recipes' `mirror` paths, in a folder or at an address."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path
from urllib.parse import quote

from embtrain.data.catalogue.recipe_file import RecipeFile
from embtrain.data.storage.folders import user_path

VARIABLE = "EMBTRAIN_DATA_MIRROR"
_log = logging.getLogger("embtrain")


def mirror_path(file: RecipeFile) -> Path | None:
    """Return the path of a file in a mirror that is a folder, whether it exists or not; None without one.

    A mirror that is neither a folder nor an address is reported once.
    """
    mirror = os.environ.get(VARIABLE, "")
    if not mirror or not file.mirror or _is_url(mirror):
        return None
    if (line := problem_line()) is not None:
        _warn(line)
        return None
    return user_path(mirror, VARIABLE) / file.mirror


def mirror_url(file: RecipeFile) -> str | None:
    """Return the address of a file in a mirror that is an http(s) address; None without one."""
    mirror = os.environ.get(VARIABLE, "")
    return f"{mirror.rstrip('/')}/{quote(file.mirror)}" if file.mirror and _is_url(mirror) else None


def problem_line() -> str | None:
    """Return a line on a mirror that is neither a folder nor an address; None if it is one, or not set."""
    mirror = os.environ.get(VARIABLE, "")
    if not mirror or _is_url(mirror) or os.path.isdir(user_path(mirror, VARIABLE)):
        return None
    return (f"{VARIABLE}: {mirror}: is neither a folder nor an http(s) address, so it is not used; correct or unset "
            "it")


def _is_url(mirror: str) -> bool:
    return mirror.startswith(("http://", "https://"))


@functools.cache
def _warn(line: str) -> None:
    _log.warning("%s", line)

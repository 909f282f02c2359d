"""The cores that this machine can run, for tests over all of them; "off" selects the reference."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from embtrain.kernels.core.loader import levels

_LEVEL = os.environ.get("EMBTRAIN_CORE_LEVEL")
NATIVE = [] if os.environ.get("EMBTRAIN_CORE") == "off" else [_LEVEL] if _LEVEL else levels()
CORES = ["off", *NATIVE]
needs_core = pytest.mark.skipif(not NATIVE, reason="core: no compiled core here")


@contextmanager
def using(core: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBTRAIN_CORE", "off" if core == "off" else "require")
        patch.setenv("EMBTRAIN_CORE_LEVEL", "" if core == "off" else core)
        yield

"""The samplers of PyKEEN without PyKEEN. With it: tests/slow/pykeen."""

from __future__ import annotations

import importlib
import sys

import pytest

from embtrain.common.errors import UsageError


def test_a_missing_pykeen_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("pykeen", "embtrain.nn.pykeen"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pykeen", None)  # the import system then reports it as missing
    with pytest.raises(UsageError) as caught:
        importlib.import_module("embtrain.nn.pykeen")
    assert caught.value.args == ("embtrain.nn.pykeen: pykeen is not installed; pip install 'embtrain[pykeen]'",)
    for name in [name for name in sys.modules if name.startswith("embtrain.nn.pykeen")]:
        monkeypatch.delitem(sys.modules, name)

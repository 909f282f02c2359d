"""Errors of the processes that read a large text name a key that every command can set."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from embtrain.common.errors import ResourceError
from embtrain.data.text.shards import workers


def no_memory(*_: Any) -> None:
    raise MemoryError


@pytest.mark.parametrize("section", ["text", "language"])
def test_memory_of_a_process_is_lowered_by_the_key_of_its_section(section: str) -> None:
    store: Any = SimpleNamespace(load_or_encode=no_memory, rules=SimpleNamespace(
        options=SimpleNamespace(section=section)))
    shard: Any = SimpleNamespace(path=Path("a.txt"))
    assert workers._encode(store, shard, None) == (
        ResourceError.code, f"a.txt: no memory to read it; lower {section}.workers, or free memory")
    error = workers._death(-9, section)
    assert str(error) == (f"{section}.workers: a worker process was ended by signal 9, perhaps because memory is "
                          f"short; lower {section}.workers, or free memory. Finished shards are kept")

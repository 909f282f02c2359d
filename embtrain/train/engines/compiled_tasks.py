"""The compiled step of each task that has one."""

from __future__ import annotations

from embtrain.train.engines.compiled import CompiledStep
from embtrain.train.engines.compiled_pairs import CompiledPairs
from embtrain.train.engines.compiled_triples import CompiledTriples
from embtrain.train.engines.compiled_windows import CompiledWindows

COMPILED_STEPS: dict[str, type[CompiledStep]] = {
    "windows": CompiledWindows,
    "walks": CompiledWindows,
    "triples": CompiledTriples,
    "pairs": CompiledPairs,
}

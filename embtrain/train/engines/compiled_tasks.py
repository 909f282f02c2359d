"""The compiled engine of each task that has one."""

from __future__ import annotations

from embtrain.train.engines.compiled import Compiled
from embtrain.train.engines.compiled_pairs import FusedPairs
from embtrain.train.engines.compiled_triples import FusedTriples
from embtrain.train.engines.compiled_windows import Fused

FUSED: dict[str, type[Compiled]] = {"windows": Fused, "walks": Fused, "triples": FusedTriples, "pairs": FusedPairs}

"""Configuration of the synchronization of several processes: the keys under `train.sync`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embtrain.common.config import Section

DEFAULT_CENTRES = 32_768  # centres or triples that a process trains between two synchronizations
AUTOGRAD_BLOCKS = 16      # blocks that it trains by autograd, which updates the tables about once a block


class SyncConfig(Section):
    """When and how the processes that torchrun starts put their tables together. One process reads none of it."""

    blocks: int | None = Field(
        None, ge=1, description=f"blocks that each process trains between two synchronizations; null: those of "
                                f"{DEFAULT_CENTRES:,} centres or triples, or {AUTOGRAD_BLOCKS} with autograd")
    frequent_rows: int | None = Field(
        1024, ge=1, description="most frequent rows of each table that are exchanged at every synchronization, twice "
                                "as many at every 2nd, four times at every 4th and so on, all at every 64th, or 8 "
                                "times in a shorter epoch; null: all at every one")
    wire: Literal["bfloat16", "float32"] = Field(
        "bfloat16", description="number format of the moves of rows that processes send each other")

    def interval(self, chunk: int, engine: str = "fused") -> int:
        """Blocks that a process trains between two synchronizations. chunk: centres or triples in a block."""
        if self.blocks is not None:
            return self.blocks
        return AUTOGRAD_BLOCKS if engine == "autograd" else max(1, DEFAULT_CENTRES // chunk)

    def per_epoch(self, n_blocks: int, chunk: int, processes: int, engine: str = "fused") -> int:
        """Synchronizations of an epoch of n_blocks blocks."""
        return -(-n_blocks // (self.interval(chunk, engine) * processes))

"""Settings that a group of processes refuses, each with its key."""

from __future__ import annotations

from typing import Any

import pytest

from embtrain.common.errors import UsageError
from embtrain.models.words.skipgram import SkipGramConfig
from embtrain.train.config import TrainConfig
from embtrain.train.group import requirements
from embtrain.train.group.config import SyncConfig


@pytest.mark.parametrize(("keys", "message"), [
    ({"device": "cuda"}, "train.device: cuda: 3 processes train one run on the CPU; set train.device: cpu"),
    ({"engine": "autograd"}, "train.engine: autograd: 3 processes train one run with the compiled engine"),
    ({"cpu_seconds": 5}, "train.cpu_seconds: 5: 3 processes are limited by train.epochs"),
])
def test_keys_without_a_meaning_for_a_group_are_refused(keys: dict[str, Any], message: str) -> None:
    requirements.check_settings(SkipGramConfig(), TrainConfig(), 3)
    with pytest.raises(UsageError) as caught:
        requirements.check_settings(SkipGramConfig(), TrainConfig(**keys), 3)
    assert str(caught.value).startswith(message) and len(caught.value.args) == 1


class Blocks:
    def n_blocks(self, epoch: int, block: int) -> int:
        return -(-1000 // block)


def test_more_processes_than_blocks_are_refused_with_a_size_that_works() -> None:
    requirements.check_blocks(Blocks(), 250, 4)                                          # type: ignore[arg-type]
    with pytest.raises(UsageError) as caught:
        requirements.check_blocks(Blocks(), 400, 4)                                      # type: ignore[arg-type]
    assert caught.value.args == ("train.chunk: 400: 4 processes cannot share an epoch of 3 blocks; set train.chunk: "
                                 "37, or start fewer processes",)
    with pytest.raises(UsageError, match=r"share an epoch of 1 block; set train\.chunk: 31, or "):
        requirements.check_blocks(Blocks(), 1000, 4)                                     # type: ignore[arg-type]
    requirements.check_blocks(Blocks(), 37, 4)                                           # type: ignore[arg-type]


def test_the_default_interval_is_a_number_of_centres_or_of_blocks_of_autograd() -> None:
    assert [SyncConfig().interval(chunk) for chunk in (4096, 32_768, 100_000)] == [8, 1, 1]
    assert SyncConfig().interval(128, "autograd") == 16 and SyncConfig().per_epoch(100, 128, 2, "autograd") == 4
    assert SyncConfig(blocks=5).interval(4096) == SyncConfig(blocks=5).interval(4096, "autograd") == 5

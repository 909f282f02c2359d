"""Damaged and hostile files: 10,000 inputs, equal in every run.

EMBTRAIN_FUZZ=FIRST:COUNT runs other input numbers of every kind. Each kind runs in a separate process: an input that
crashes it is reported with its number, and its memory is measured separately.
"""

from __future__ import annotations

import multiprocessing
import resource
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from helpers.hostile import Kind, Tally, campaign, input_numbers
from helpers.hostile_files import KINDS, two_runs
from helpers.promises import PAGE, block, tell, with_row

pytestmark = pytest.mark.slow

FORK = multiprocessing.get_context("fork")
INPUTS = {"run-files": 60, "joined": 40, "checkpoint": 60, "resumed": 60}  # a second each
MOST = 306                   # of every other kind
SECONDS = 5.0                # CPU seconds of one input
BYTES = 200 << 20            # in addition to twice the file
ROOM = 8 << 30               # address space: larger allocations fail
SETTINGS = ("values-", "settings", "strategy")  # the settings themselves must limit the memory they request


@pytest.fixture(scope="module", autouse=True)
def _warmed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import before forking the modules that every process needs."""
    torch.set_num_threads(1)
    two_runs(tmp_path_factory.mktemp("warm"))


def apart(kind: Kind, numbers: range, place: Path, queue: Connection) -> None:
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    queue.send(campaign(kind, numbers, place, queue.send))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_input_gives_an_unexpected_error(kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    received, queue = FORK.Pipe(duplex=False)
    child = FORK.Process(target=apart, args=(kind, input_numbers(INPUTS.get(kind.name, MOST)), tmp_path, queue))
    child.start()
    queue.close()
    last: object = None
    try:
        while not isinstance(last, Tally):
            if not received.poll(60):
                child.kill()
                raise AssertionError(f"{kind.name} {last}: takes more than a minute")
            last = received.recv()
    except EOFError as error:
        raise AssertionError(f"{kind.name} {last}: the process ended in {child.exitcode}") from error
    child.join()
    tell("damaged files", with_row(block(PAGE.read_text(encoding="utf-8"), "damaged files"), last.row(kind.name),
                                   [kind.name for kind in KINDS]), capsys, last.row(kind.name))
    assert last.faults == []
    assert kind.name.startswith(SETTINGS) or (last.slowest[0] < SECONDS and last.largest[0] < BYTES)

"""Functions of the Python interface raise KeyboardInterrupt for Ctrl-C, and restore torch's thread count."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
import torch

from embtrain.common.errors import Interrupted, Stopped, UsageError
from embtrain.train.state.signals import Stop, protect_caller


@protect_caller()
def call(body: Callable[[], int]) -> int:
    torch.set_num_threads(2)
    return body()


def receive(number: int) -> Callable[[], int]:
    def body() -> int:
        with Stop() as stop:
            os.kill(os.getpid(), number)
            try:
                stop.check()
            except Stopped as stopped:
                raise Stopped(stopped.signal, "embtrain resume a") from stopped
        return 0
    return body


def test_ctrl_c_is_a_keyboard_interrupt_and_stopped() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        call(lambda: call(receive(signal.SIGINT)))
    error = caught.value
    assert isinstance(error, Interrupted) and isinstance(error, Stopped) and not isinstance(error, Exception)
    assert str(error) == "stopped by signal 2; to resume: embtrain resume a"
    assert (error.signal, error.code) == (signal.SIGINT, 130)


def test_sigterm_is_no_keyboard_interrupt() -> None:
    with pytest.raises(Stopped) as caught:
        call(receive(signal.SIGTERM))
    assert not isinstance(caught.value, KeyboardInterrupt) and caught.value.code == 143


def fail() -> int:
    raise UsageError("a: b")


def test_the_thread_count_is_restored() -> None:
    torch.set_num_threads(3)
    assert call(lambda: call(torch.get_num_threads)) == 2 and torch.get_num_threads() == 3
    with pytest.raises(UsageError):
        call(fail)
    assert torch.get_num_threads() == 3
    with pytest.raises(KeyboardInterrupt):
        call(receive(signal.SIGINT))
    assert torch.get_num_threads() == 3

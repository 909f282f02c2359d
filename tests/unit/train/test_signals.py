"""The first signal requests a stop, the second ends the process, and the handlers are restored afterwards."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from embtrain.common.errors import Stopped
from embtrain.train.state.signals import DUPLICATE_SECONDS, SIGNALS, Stop

FORK = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_is_recorded_and_raised_on_check(number: int, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    with Stop() as stop:
        stop.check()
        assert stop.requested is None
        os.kill(os.getpid(), number)
        assert stop.requested == number
        with pytest.raises(Stopped) as error:
            stop.check()
    assert error.value.code == code
    assert capfd.readouterr().err.strip() == "stopping after a checkpoint; a second signal stops at once"


def test_request_sent_twice_is_one_request() -> None:
    """Like `timeout`: to the process and to its group."""
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested == signal.SIGTERM


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP])
def test_a_lost_terminal_is_no_second_signal(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed terminal and its shell each send SIGHUP, at any distance."""
    monkeypatch.setattr("embtrain.train.state.signals.end_at_once", lambda _: pytest.fail("ended without a checkpoint"))
    with Stop() as stop:
        os.kill(os.getpid(), first)
        stop._since -= 10
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.requested == first


def twice(first: int, second: int) -> Callable[[], None]:
    def body() -> None:
        with Stop():
            os.kill(os.getpid(), first)
            time.sleep(DUPLICATE_SECONDS + 0.05)
            try:
                os.kill(os.getpid(), second)
                time.sleep(5)
            finally:
                os._exit(1)  # a second signal runs no finally
    return body


@pytest.mark.parametrize(("first", "second", "code"), [
    (signal.SIGINT, signal.SIGINT, 130), (signal.SIGTERM, signal.SIGINT, 130), (signal.SIGINT, signal.SIGTERM, 143)])
def test_second_signal_ends_at_once(first: int, second: int, code: int) -> None:
    child = FORK.Process(target=twice(first, second))
    begun = time.monotonic()
    child.start()
    child.join(5)
    assert child.exitcode == code and time.monotonic() - begun < 4
    child.close()


def test_previous_handlers_are_restored() -> None:
    def handler(*_: object) -> None: ...
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(KeyError), Stop():
            assert signal.getsignal(signal.SIGTERM) is not handler
            raise KeyError
        assert signal.getsignal(signal.SIGTERM) is handler
        with Stop(), Stop():  # the inner block restores the handlers of the outer one
            pass
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ignored_signal_stays_ignored_while_the_block_runs(number: int) -> None:
    """A script's background job starts with SIGINT ignored, and one of nohup with SIGHUP; SIGTERM stops both."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with Stop() as stop:
            os.kill(os.getpid(), number)
            assert stop.requested is None
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.requested == signal.SIGTERM
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_other_threads_install_no_handler() -> None:
    seen: list[object] = []

    def body() -> None:
        before = signal.getsignal(signal.SIGINT)
        with Stop() as stop:
            stop.check()
            seen.append(signal.getsignal(signal.SIGINT) is before)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [True]

"""Calls that go on after their time are interrupted, and where that is not possible given up."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from unittest.mock import MagicMock

import pytest

from autotune.errors import AutotuneError, InvalidValueError
from autotune.process.deadline import Deadline

SOON = 0.05


def over() -> AutotuneError:
    return InvalidValueError("the time is over")


def loop() -> None:
    while True:
        pass


def sleep() -> None:
    time.sleep(60)


def with_handler() -> None:
    """Turn whatever is raised in a call into another error, as a compiler's binding does."""
    try:
        sleep()
    except BaseException as error:
        raise ValueError("the call failed") from error


@pytest.mark.parametrize("body", [loop, sleep, with_handler])
def test_what_goes_on_is_interrupted(body: Callable[[], None]) -> None:
    began = time.monotonic()
    with pytest.raises(InvalidValueError, match="the time is over"), Deadline(SOON, over):
        body()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("seconds", [60.0, float("inf")])
def test_what_is_done_in_time_is_left_alone(seconds: float) -> None:
    with Deadline(seconds, over):
        pass
    with pytest.raises(ValueError, match="its own"), Deadline(seconds, over):
        raise ValueError("its own")
    with pytest.raises(KeyboardInterrupt), Deadline(seconds, over):
        signal.raise_signal(signal.SIGINT)


def test_a_time_that_is_over_already_is_an_error_at_once() -> None:
    for seconds in (-1.0, 0.0, 1e-9):
        with pytest.raises(InvalidValueError), Deadline(seconds, over):
            sleep()


def test_code_that_cannot_be_interrupted_is_given_up() -> None:
    said: list[str] = []
    given_up = threading.Event()

    def give_up(error: AutotuneError) -> None:
        said.append(str(error))
        given_up.set()

    # As native code, which sees no interrupt, wherever it is when one comes.
    handler = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with (
            pytest.raises(InvalidValueError, match="the time is over"),
            Deadline(SOON, over, give_up, grace=SOON),
        ):
            assert given_up.wait(300)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert said == ["the time is over"]


def test_what_ends_while_its_interrupt_is_on_the_way_is_not_given_up() -> None:
    deadline = Deadline(300.0, over, pytest.fail)

    def interrupt(_lock: object) -> None:
        deadline._is_over = True
        raise KeyboardInterrupt

    with pytest.raises(InvalidValueError, match="the time is over"), deadline:
        # Who interrupts holds it, and the end waits for it.
        deadline._lock = MagicMock(__enter__=interrupt)
    assert deadline._done.is_set()


def test_in_another_thread_the_end_is_late_and_nobody_is_interrupted() -> None:
    found: list[BaseException] = []

    def late() -> None:
        try:
            # Where nobody is interrupted, giving up is a sign that the time is over.
            with Deadline(SOON, over, lambda _: is_over.set(), grace=0.0):
                assert is_over.wait(300)
        except InvalidValueError as error:
            found.append(error)

    is_over = threading.Event()
    thread = threading.Thread(target=late)
    thread.start()
    thread.join()
    assert [str(it) for it in found] == ["the time is over"]

"""What a worker does with the messages of its host."""

from __future__ import annotations

import os
import time
from typing import cast

import pytest
from toy_parts import REFERENCE_BACKEND

from autotune.backends import BoundCall
from autotune.measure.worker import Worker, _first_call
from autotune.process.child import Connection


@pytest.mark.parametrize("first", ["hello", None])
def test_a_job_needs_hello_and_a_task(first: str | None) -> None:
    receive, send = os.pipe()
    try:
        worker = Worker(REFERENCE_BACKEND, Connection(receive, send))
        if first is not None:
            worker.handlers[first]({})
        with pytest.raises(RuntimeError, match="a job came before hello and task"):
            worker.handlers["build"]({"observe": False})
    finally:
        os.close(receive)
        os.close(send)


class Sleeps:
    """A call that needs no processor, as one that waits for memory to be granted."""

    def run(self) -> None:
        time.sleep(0.05)


@pytest.mark.parametrize("threads", [1, 4])
def test_what_a_first_call_waits_for_is_no_time_of_its_own(threads: int) -> None:
    first = _first_call(cast(BoundCall, Sleeps()), threads)
    assert first.seconds >= 0.05
    assert 0 <= first.user_seconds < first.seconds / 2

"""What a worker does with the messages of its host."""

from __future__ import annotations

import os

import pytest
from toy_parts import REFERENCE_BACKEND

from autotune.measure.worker import Worker
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

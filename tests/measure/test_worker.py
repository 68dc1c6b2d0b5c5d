"""Messages of a host, and a worker's answers to them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import cast

import pytest
from toy_parts import REFERENCE_BACKEND

from autotune.backends import BoundCall
from autotune.measure.worker import Worker, _first_call
from autotune.plugins.parts import import_string
from autotune.process.child import Connection
from autotune.process.fork_server_process import worker_environment


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


OF_THE_HOST = (
    *("autotune.backends.cuda_compilers", "autotune.ir.workloads.builders"),
    *("autotune.measure.engines.supervised", "autotune.measure.local_measurer"),
    *("autotune.plugins.builtin", "autotune.process.worker_process"),
    *("autotune.store.sqlite", "autotune.targets.resolution"),
    *("concurrent.futures", "pandas", "rich", "scipy", "sqlite3", "torch", "tvm"),
)
"""Modules that take long to import, and are of no use to a worker of the built-in backend."""


def test_a_worker_imports_what_it_needs() -> None:
    check = (
        "import sys; from autotune.measure import worker; "
        "from autotune.plugins.parts import create_part; "
        f"create_part('backend', {import_string('backend', 'native')!r}).warm_up(); "
        f"print(*sorted({{*{OF_THE_HOST!r}}} & {{*sys.modules}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", check],
        capture_output=True,
        text=True,
        timeout=300,
        env=worker_environment(1, {}),
    )
    assert (done.stdout, done.stderr) == ("\n", "")

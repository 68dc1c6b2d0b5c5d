"""A worker that answers, for tests."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from autotune.process import Message
from autotune.process.child import connect, serve


def double(question: Message) -> Message:
    return {"is": 2 * question["number"]}


def describe(question: Message) -> Message:
    """Facts of this process, before it has imported anything more."""
    imported = [name for name in question["modules"] if name in sys.modules]
    return {
        "pid": os.getpid(),
        "variables": {name: os.environ.get(name) for name in question["variables"]},
        "folder": os.getcwd(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "imported": imported,
        "blas": _blas_threads() if "numpy" in imported else [],
        "command": Path("/proc/self/cmdline").read_text().split("\0"),
    }


def _blas_threads() -> list[int]:
    from threadpoolctl import threadpool_info

    return [it["num_threads"] for it in threadpool_info() if it["user_api"] == "blas"]


def fail(_question: Message) -> Message:
    raise RuntimeError("cannot")


def leave(_question: Message) -> Message:
    os._exit(5)


def hang(_question: Message) -> Message:
    time.sleep(600)
    return {}


def main() -> None:
    connection, _ = connect("answering_child")
    handlers = {"double": double, "describe": describe, "fail": fail}
    serve(connection, {**handlers, "leave": leave, "hang": hang})

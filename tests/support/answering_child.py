"""A worker that answers, for tests."""

from __future__ import annotations

import os
import time

from autotune.process import Message
from autotune.process.child import connect, serve


def double(question: Message) -> Message:
    return {"is": 2 * question["number"]}


def fail(_question: Message) -> Message:
    raise RuntimeError("cannot")


def leave(_question: Message) -> Message:
    os._exit(5)


def hang(_question: Message) -> Message:
    time.sleep(600)
    return {}


def main() -> None:
    connection, _ = connect("answering_child")
    serve(connection, {"double": double, "fail": fail, "leave": leave, "hang": hang})

"""The worker process: runs commands and calls functions for its host, one at a time.

Started by :class:`~autotune.measure.pool.WorkerPool` under a keeper, so that all that it has
started goes with it and with the host.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from autotune.errors import attribute_of
from autotune.external.jobs import call_function, run_command
from autotune.process.channel import Message
from autotune.process.child import connect, serve

__all__ = ["MODULE", "loaded_function", "main"]

MODULE = "autotune.external.worker"


def loaded_function(name: str) -> Callable[..., Any]:
    """The function ``module:function``.

    Raises:
        ImportError: there is no such module.
        AttributeError: it has no such function.
        TypeError: what it has is none.
    """
    module, _, attribute = name.partition(":")
    found = attribute_of(importlib.import_module(module), attribute)
    if not callable(found):
        raise TypeError(f"{name} is a {type(found).__name__}, and no function")
    function: Callable[..., Any] = found
    return function


def main() -> None:
    """Serve until the host closes its end."""
    connection, _ = connect(MODULE, ["backend"])

    def hello(message: Message) -> Message:
        with connection.phase("start"):
            if message["function"]:
                # Imported once: what the calls are forked from has it already.
                sys.path.insert(0, message["directory"])
                loaded_function(message["function"])
        return {}

    def command(message: Message) -> Message:
        with connection.phase(message["phase"]):
            return run_command(**message["settings"])

    def call(message: Message) -> Message:
        with connection.phase(message["phase"]):
            return call_function(
                lambda: loaded_function(message["function"]), **message["settings"]
            )

    serve(connection, {"hello": hello, "command": command, "call": call})

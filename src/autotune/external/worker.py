"""The worker process: runs commands and calls functions for its host, one at a time.

Started by :class:`autotune.external.workers.JobWorkers` under a keeper, so that all that it has
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

__all__ = ["loaded_function", "main"]


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


def _prepare(message: Message) -> Message:
    # Imported once: what the calls are forked from has it already.
    sys.path.insert(0, message["directory"])
    loaded_function(message["function"])
    return {}


def _command(message: Message) -> Message:
    settings = {key: it for key, it in message.items() if key not in ("op", "words")}
    return run_command(message["words"], **settings)


def _call(message: Message) -> Message:
    settings = {key: it for key, it in message.items() if key not in ("op", "function", "config")}
    return call_function(
        lambda: loaded_function(message["function"]), message["config"], **settings
    )


def main() -> None:
    """Serve until the host closes its end."""
    connection, _ = connect("autotune.external.worker")
    serve(connection, {"prepare": _prepare, "command": _command, "call": _call})

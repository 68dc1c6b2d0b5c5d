"""Transport of autotune's errors between processes, with their types."""

from __future__ import annotations

import importlib
import json
from typing import Any

from autotune.errors import AutotuneError
from autotune.process.channel import Message
from autotune.process.child import Handler

__all__ = ["accepted", "error_from_json", "error_to_json", "refusing"]

_OWN_PACKAGE = "autotune."


def refusing(handler: Handler) -> Handler:
    """A handler that lets errors which are meant for the user through to the host's user."""

    def handle(message: Message) -> Message:
        try:
            return handler(message)
        except AutotuneError as error:
            return {"refused": error_to_json(error)}

    return handle


def accepted(answer: Message) -> Message:
    """The answer of a handler that was :func:`refusing`.

    Raises:
        AutotuneError: what the handler raised.
    """
    refused = answer.get("refused")
    if isinstance(refused, dict):
        raise error_from_json(refused)
    return answer


def error_to_json(error: AutotuneError) -> Message:
    """Write an error as JSON that :func:`error_from_json` makes the same of elsewhere."""
    reduced = error.__reduce__()
    arguments: Any = reduced[1] if isinstance(reduced, tuple) else error.args
    try:
        json.dumps(arguments)
    except (TypeError, ValueError):
        arguments = [str(error)]
    # The class itself may be a plugin's, whose modules are nothing for the host to import.
    known = next(kind for kind in type(error).__mro__ if kind.__module__.startswith(_OWN_PACKAGE))
    if known is not type(error):
        arguments = [str(error)]
    return {
        "module": known.__module__,
        "class": known.__qualname__,
        "arguments": list(arguments),
        "message": str(error),
    }


def error_from_json(data: Message) -> AutotuneError:
    """The error that :func:`error_to_json` described, of the same class, with the same message.

    Anything else gives an :class:`AutotuneError` with the message.
    """
    message = str(data.get("message"))
    kind = _class_of(str(data.get("module")), str(data.get("class")))
    try:
        error = kind(*data.get("arguments", ()))
    except TypeError:
        return AutotuneError(message)
    return error if str(error) == message else AutotuneError(message)


def _class_of(module: str, name: str) -> type[AutotuneError]:
    if not module.startswith(_OWN_PACKAGE):
        return AutotuneError
    try:
        kind = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return AutotuneError
    return kind if isinstance(kind, type) and issubclass(kind, AutotuneError) else AutotuneError

from __future__ import annotations

import json

import pytest

from autotune.errors import AutotuneError, InvalidValueError, PluginError, UnknownNameError
from autotune.process import WorkerStartFailed
from autotune.process.error_codec import error_from_json, error_to_json
from autotune.process.interrupts import TuningInterrupted


class OfAPlugin(InvalidValueError):
    """Of a class that only the other process knows."""


class Peculiar(AutotuneError):
    """Not made from its message."""

    def __init__(self, number: int, *, unit: object) -> None:
        super().__init__(f"{number} {unit}")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidValueError("three"), InvalidValueError),
        (PluginError(), PluginError),
        (UnknownNameError("strategy", "gird", ["grid", "random"], "Really."), UnknownNameError),
        (TuningInterrupted("run", 3, "file"), TuningInterrupted),
        (WorkerStartFailed("no"), WorkerStartFailed),
        (OfAPlugin("of a plugin"), InvalidValueError),
        (Peculiar(3, unit=object), AutotuneError),
        (InvalidValueError(object()), InvalidValueError),
    ],
)
def test_errors_keep_class_and_message(error: AutotuneError, kind: type[AutotuneError]) -> None:
    arrived = error_from_json(json.loads(json.dumps(error_to_json(error))))
    assert type(arrived) is kind and str(arrived) == str(error)


def test_attributes_arrive_too() -> None:
    arrived = error_from_json(error_to_json(UnknownNameError("preset", "zen", ["zen4"])))
    assert isinstance(arrived, UnknownNameError)
    assert (arrived.kind, arrived.name, arrived.allowed) == ("preset", "zen", ("zen4",))


@pytest.mark.parametrize(
    "data",
    [
        {"message": "m"},
        {"message": "m", "module": "os", "class": "system", "arguments": ["true"]},
        {"message": "m", "module": "autotune.no", "class": "A", "arguments": []},
        {"message": "m", "module": "autotune.errors", "class": "difflib", "arguments": []},
        {"message": "m", "module": "autotune.errors", "class": "PluginError", "arguments": 3},
        {"message": "m", "module": "autotune.errors", "class": "PluginError", "arguments": [3]},
    ],
)
def test_anything_else_is_an_error_with_the_message(data: dict[str, object]) -> None:
    arrived = error_from_json(data)
    assert type(arrived) is AutotuneError and str(arrived) == "m"

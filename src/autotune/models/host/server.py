"""The process of the models.

It creates the requested models and serves the calls of the tuner.
"""

from __future__ import annotations

import logging
import types
from typing import Any

import numpy as np

from autotune.errors import InvalidValueError
from autotune.models.context import ModelContext
from autotune.models.cost import (
    CostModel,
    DifferentiableCostModel,
    ModelFile,
    TrainableCostModel,
    check_has_learned,
    require_differentiable,
    split_learn,
)
from autotune.models.host.transport import (
    SketchReader,
    differentiable_names,
    pack_state,
    unpack_state,
)
from autotune.plugins import PluginSpec
from autotune.plugins.manager import manager
from autotune.plugins.parts import create_part
from autotune.plugins.spec import HOOK
from autotune.process import ATTACHMENTS, Message
from autotune.process.child import Handler, connect, serve
from autotune.process.error_codec import refusing
from autotune.process.importing import packages_hidden
from autotune.targets import Target

PROGRAM = "autotune.models.host.server"

MODEL_LOG = "autotune.models.cost"
"""Name of the logger whose warnings during an update the run passes on."""


class ModelServer:
    """Holds at most one model of each kind."""

    def __init__(self) -> None:
        self._models: dict[str, Any] = {}
        # Whether the cost model is updated.
        self._learns = True
        self._sketches = SketchReader()
        self._log = _ModelLog()
        logging.getLogger(MODEL_LOG).addHandler(self._log)

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers of each kind of message."""
        return {
            "make": refusing(self._make),
            "score": self._score,
            "relaxed": refusing(self._relaxed),
            "update": self._update,
            "state": self._state,
            "load_state": refusing(self._load_state),
        }

    def _make(self, message: Message) -> Message:
        """Make a model; answers with its own name."""
        kind, name, factory = message["kind"], message["name"], message["factory"]
        if factory != name and name not in manager().names(kind):
            _register(PluginSpec(kind, name, factory, "registered by the host"))
        target = Target.from_json(message["target"])
        arguments = dict(message["arguments"])
        learns = True
        if kind == "cost_model":
            learns, arguments["options"] = split_learn(name, arguments.get("options", {}))
        model = create_part(kind, name, ModelContext(target=target, **arguments))
        if isinstance(model, CostModel):
            with packages_hidden(*model.unused_packages):
                model.warm_up()
        if message["file"] is not None:
            _load(name, model, ModelFile(**message["file"]))
        elif not learns:
            check_has_learned(name, model)
        self._learns = learns
        self._models[kind] = model
        return {"name": str(getattr(model, "name", name))}

    def _score(self, message: Message) -> Message:
        batch = self._sketches.batch(message)
        model = self._models[message["model"]]
        score = model.predict if isinstance(model, CostModel) else model.score
        scores = np.ascontiguousarray(score(batch), dtype=np.float64)
        return {"shape": list(scores.shape), ATTACHMENTS: [scores]}

    def _relaxed(self, message: Message) -> Message:
        sketch, rows = self._sketches.points(message)
        model = self._models["cost_model"]
        if not isinstance(model, DifferentiableCostModel):
            require_differentiable(model, differentiable_names())
        values, gradient = (
            np.ascontiguousarray(found, dtype=np.float64) for found in model.relaxed(sketch, rows)
        )
        shapes = [list(values.shape), list(gradient.shape)]
        return {"shapes": shapes, ATTACHMENTS: [values, gradient]}

    def _update(self, message: Message) -> Message:
        outcomes = self._sketches.outcomes(message)
        if self._learns:
            self._models["cost_model"].update(outcomes)
        return {"warnings": self._log.taken()}

    def _state(self, _message: Message) -> Message:
        return pack_state(self._models["cost_model"].state())

    def _load_state(self, message: Message) -> Message:
        self._models["cost_model"].load_state(unpack_state(message))
        return {}


class _ModelLog(logging.Handler):
    """Keeps the warnings that a model logs, until they are taken."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())

    def taken(self) -> list[str]:
        """Return what was logged since the last call."""
        taken, self._messages = self._messages, []
        return taken


def _load(name: str, model: object, file: ModelFile) -> None:
    """Let a model begin with what a file holds."""
    if not isinstance(model, TrainableCostModel):
        raise InvalidValueError(
            f"cost model {name!r} cannot be loaded from a file: it is not a TrainableCostModel"
        )
    try:
        model.load(file.open())
    except InvalidValueError as error:
        raise InvalidValueError(f"{file.path}: {error}") from error


def _register(spec: PluginSpec) -> None:
    """Register a part that only the host had registered."""
    plugin = types.SimpleNamespace(**{HOOK: lambda: [spec]})
    manager().register(plugin, f"registered_{spec.kind}_{spec.name}")


def main() -> None:
    """Serve one host; started by ``WorkerProcess`` only."""
    connection, _ = connect(PROGRAM)
    serve(connection, ModelServer().handlers)

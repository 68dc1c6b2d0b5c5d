"""Keeps the models of a run in a process of their own, and the run going when they fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from attrs import asdict, define, field, frozen

from autotune.errors import AutotuneError, PluginError
from autotune.models.cost import ModelFile
from autotune.models.host.model_process import Clock, ModelFailed, ModelProcess
from autotune.models.host.transport import SketchWriter
from autotune.plugins.manager import manager
from autotune.plugins.parts import check_part
from autotune.process import Message
from autotune.process.error_codec import accepted
from autotune.targets import Target

__all__ = ["ModelHost", "HostedModel", "HostLimits", "ModelSpec"]

_ATTEMPTS = 2

Result = TypeVar("Result")
MakeMessage = Callable[[SketchWriter], Message]


@frozen
class HostLimits:
    """Resource limits of models.

    Attributes:
        start_seconds: For making a model, imports included.
        call_seconds: For one call.
        row_seconds: Additional time for each row of a call.
        memory_bytes: Memory of the process; None for most of the machine.
    """

    start_seconds: float = 120.0
    call_seconds: float = 60.0
    row_seconds: float = 0.005
    memory_bytes: int | None = None


@frozen
class ModelSpec:
    """A model by name.

    Attributes:
        kind: ``"cost_model"`` or ``"pruning_model"``.
        name: A registered name, or an import string ``module:attribute``.
        arguments: Fields of its context besides the target; JSON values.
        file: What a cost model loads once it is made; None for nothing.
    """

    kind: str
    name: str
    arguments: Mapping[str, Any] = field(factory=dict)
    file: ModelFile | None = None

    def __str__(self) -> str:
        return f"{self.kind.replace('_', ' ')} {self.name!r}"

    def message(self, target: Target) -> Message:
        """Message that describes what the process is to make."""
        return {
            "op": "make",
            "kind": self.kind,
            "name": self.name,
            "factory": _factory_text(self.kind, self.name),
            "target": target.to_json(),
            "arguments": dict(self.arguments),
            "file": None if self.file is None else asdict(self.file),
        }


def _factory_text(kind: str, name: str) -> str:
    """Import string of a registered part, for a process that may lack the registration."""
    if ":" in name:
        return ""
    factory = manager().get(kind, name).factory
    if isinstance(factory, str):
        return factory
    module, path = getattr(factory, "__module__", None), getattr(factory, "__qualname__", "<")
    return "" if module in (None, "__main__") or "<" in path else f"{module}:{path}"


@define(eq=False)
class HostedModel:
    """A model of the process as the host knows it.

    Attributes:
        spec: What it is.
        history: Messages that bring a new one to where this one is.
        failure: Why it was given up; None while it is in use.
        own_name: What it calls itself, once it was made.
        bad_starts: How often it could not be made again and brought to where it was.
    """

    spec: ModelSpec
    history: Callable[[], Iterable[MakeMessage]] = tuple
    failure: str | None = None
    own_name: str = ""
    bad_starts: int = 0


class ModelHost:
    """Process for all models of a run, restarted when a model crashes, hangs or misbehaves.

    A call that fails is repeated once, in a new process in which all models are what they were.
    When it fails again, the model is given up: ``on_warning`` is called, and the run continues.
    Threads may share a host; their calls wait for each other.

    Args:
        target: What the models are for.
        specs: The models, at most one of each kind.
        on_warning: Called with a message for every model that is given up.
        limits: What the models may use.
        clock: Monotonic seconds.

    Raises:
        UnknownNameError: no plugin registers a model.
        InvalidValueError: a name is not a string.
    """

    def __init__(
        self,
        target: Target,
        specs: Sequence[ModelSpec],
        *,
        on_warning: Callable[[str], None] = lambda message: None,
        limits: HostLimits | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        for spec in specs:
            check_part(spec.kind, spec.name)
        self.on_warning = on_warning
        self.models = [HostedModel(spec) for spec in specs]
        self._target = target
        self._limits = limits or HostLimits()
        self._process = ModelProcess(self._limits.memory_bytes, clock)
        self._sketches = SketchWriter()
        self._lock = threading.RLock()
        # Launched and not waited for; with all models where they were; ever so.
        self._launched = self._ready = self._was_ready = False

    def __enter__(self) -> ModelHost:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Process id of the models' process; None when there is none."""
        return self._process.pid

    def start(self) -> None:
        """Let the models be made in the background; returns at once."""
        with self._lock, suppress(ModelFailed):  # which shows when they are needed
            self._launch()

    def wait_ready(self) -> None:
        """Wait until the models are made.

        Raises:
            AutotuneError: a model refuses to be made, for a reason that it states, or cannot be
                made (PluginError).
        """
        with self._lock:
            self._bring_up()

    def close(self) -> None:
        """End the process and remove its files."""
        with self._lock:
            self._process.close()

    def call(
        self,
        model: HostedModel,
        what: str,
        make: MakeMessage,
        read: Callable[[Message], Result],
        rows: int = 0,
    ) -> Result | None:
        """Return a model's answer; None if it has been given up, now or before.

        Args:
            model: The model to call.
            what: What it does, for messages.
            make: Makes the question.
            read: Makes something of the answer; raises :class:`ModelFailed` when it makes no
                sense, which counts as a failure of the model.
            rows: How many rows the question is about.

        Raises:
            AutotuneError: the model refuses what it is asked, and means the user.
        """
        seconds = self._limits.call_seconds + rows * self._limits.row_seconds
        failure = ""
        with self._lock:
            for _ in range(_ATTEMPTS):
                self._bring_up()
                if model.failure is not None:
                    return None
                try:
                    return read(accepted(self._ask(make, seconds)))
                except ModelFailed as error:
                    failure = str(error)
                    self._process.end()
            self.give_up(model, f"failed in {what}: {failure}")
        return None

    def give_up(self, model: HostedModel, why: str) -> None:
        """Do without a model from now on."""
        model.failure = why
        first, _, rest = why.partition("\n")
        text = f"{model.spec} {first}; the run continues without it"
        self.on_warning(f"{text}\n{rest}" if rest else text)

    def _used(self) -> Iterator[HostedModel]:
        return (model for model in self.models if model.failure is None)

    def _ask(self, make: MakeMessage, seconds: float) -> Message:
        self._process.send(make(self._sketches))
        return self._process.answer(seconds)

    def _launch(self) -> None:
        """Start a process and ask for all models, without waiting for any."""
        self._launched, self._ready = True, False
        self._sketches = SketchWriter()
        self._process.start()
        for model in self._used():
            self._process.send(model.spec.message(self._target))

    def _bring_up(self) -> None:
        """Ensure that the process runs, with the models in use restored."""
        while any(self._used()) and not (self._ready and self._process.usable):
            culprit = None
            try:
                if not self._launched:
                    self._launch()
                # An interrupt may come anywhere: then all of this is done again.
                self._launched = False
                for culprit in self._used():
                    answer = accepted(self._process.answer(self._limits.start_seconds))
                    culprit.own_name = str(answer.get("name"))
                for culprit in self._used():
                    self._restore(culprit)
                self._ready = self._was_ready = True
                for model in self.models:
                    model.bad_starts = 0
            except ModelFailed as error:
                self._process.end()
                self._note_bad_start(culprit, str(error))
            except AutotuneError as error:
                self._process.end()
                if not self._was_ready:
                    raise
                self._note_bad_start(culprit, str(error))

    def _restore(self, model: HostedModel) -> None:
        for make in model.history():
            accepted(self._ask(make, self._limits.call_seconds))

    def _note_bad_start(self, culprit: HostedModel | None, how: str) -> None:
        for model in self._used() if culprit is None else [culprit]:
            model.bad_starts += 1
            if model.bad_starts < _ATTEMPTS:
                continue
            if not self._was_ready:
                raise PluginError(f"{model.spec} failed on construction: {how}")
            self.give_up(model, f"failed when it was started again: {how}")

"""Keeps the models of a run in a process of their own, and the run going when they fail."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from attrs import asdict, define, field, frozen

from autotune.errors import AutotuneError, InvalidValueError, PluginError
from autotune.models.cost import ModelFile
from autotune.models.host.transport import SketchWriter
from autotune.plugins.parts import check_part, import_string
from autotune.process import (
    ATTACHMENTS,
    THREAD_VARIABLES,
    Message,
    WorkerDied,
    WorkerProcess,
)
from autotune.process.ending import ending_with
from autotune.process.error_codec import accepted
from autotune.process.memory import default_memory_limit
from autotune.process.private_folder import make_private_folder
from autotune.targets import Target

__all__ = [
    "HostLimits",
    "HostedModel",
    "ModelFailed",
    "ModelHost",
    "ModelProcess",
    "ModelSpec",
]

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
            "factory": import_string(self.kind, self.name),
            "target": target.to_json(),
            "arguments": dict(self.arguments),
            "file": None if self.file is None else asdict(self.file),
        }


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

    def model(self, kind: str) -> HostedModel:
        """The model of a kind.

        Raises:
            InvalidValueError: there is none.
        """
        for model in self.models:
            if model.spec.kind == kind:
                return model
        raise InvalidValueError(f"the host has no {kind.replace('_', ' ')}")

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


Clock = Callable[[], float]

_MODULE = "autotune.models.host.server"

# How long a death that closes no pipe (a grandchild holds it open) may go unnoticed.
_POLL_SECONDS = 0.05

# Between two calls of a model something may be timed: threads have to sleep, not to spin.
_SLEEPING_THREADS = {
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "0",
    "KMP_BLOCKTIME": "0",
    # It has no such switch that could be set once it is loaded.
    "OPENBLAS_NUM_THREADS": "1",
}


class ModelFailed(Exception):
    """A model did not answer as it should; the message says what it did instead."""


class ModelProcess:
    """A process for models that can be started again and again.

    Args:
        memory_bytes: What it may allocate; None for most of the machine.
        clock: Monotonic seconds.
    """

    def __init__(self, memory_bytes: int | None = None, clock: Clock = time.monotonic) -> None:
        self._memory_bytes = default_memory_limit() if memory_bytes is None else memory_bytes
        self._clock = clock
        self._folder = make_private_folder()
        self._started = 0
        self._process: WorkerProcess | None = None
        # How much it was asked that it has not answered yet, and answers that were not taken yet.
        self._owes = 0
        self._answers: deque[Message] = deque()
        self._running: list[WorkerProcess] = []
        # Also runs when the interpreter exits or the object is forgotten.
        self._finish = ending_with(self, partial(_end_all, self._running), self._folder.remove)

    @property
    def pid(self) -> int | None:
        """Process id, for people who look at the machine; None when it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def usable(self) -> bool:
        """True if it runs and owes no answer, as it would after an interrupt."""
        has_stray = bool(self._owes or self._answers)
        return self._process is not None and not has_stray and self._process.alive

    def start(self) -> None:
        """Start a new process in place of the one there was, and return at once."""
        self.end()
        self._started += 1
        self._folder.restore()
        kept = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
        self._process = WorkerProcess(
            _MODULE,
            {},
            # What libraries take where nothing is said.
            len(os.sched_getaffinity(0)),
            {**_SLEEPING_THREADS, **kept},
            self._memory_bytes,
            self._folder.path / f"models-{self._started}",
        )
        self._running.append(self._process)

    def end(self) -> None:
        """Kill the process, if one runs, with all it has started."""
        if self._process is not None:
            self._process.end()
            self._process = None
        self._running.clear()
        self._owes = 0
        self._answers.clear()

    def close(self) -> None:
        """End the process for good, and remove its files."""
        self._process = None
        self._finish()

    def send(self, message: Message) -> None:
        """Ask something.

        Raises:
            ModelFailed: the process is gone.
        """
        if self._process is None:
            raise ModelFailed("its process does not run")
        self._owes += 1
        try:
            self._process.send(message)
        except WorkerDied as error:
            alive = self._process.alive
            how = self._process.end()
            self.end()
            raise ModelFailed(str(error) if alive else how) from None

    def answer(self, seconds: float) -> Message:
        """The answer to the first question that has none yet.

        Raises:
            ModelFailed: the process has ended, does not answer in time, or says that it failed.
                In the first two cases it is gone.
        """
        process, deadline = self._process, self._clock() + seconds
        if process is None:
            raise ModelFailed("its process does not run")
        while not self._answers:
            try:
                self._answers += process.receive()
            except WorkerDied as error:
                self.end()
                raise ModelFailed(str(error)) from None
            if self._answers:
                break
            remaining = deadline - self._clock()
            if remaining <= 0:
                self.end()
                raise ModelFailed(f"took more than {seconds:g} s")
            select.select([process], [], [], min(_POLL_SECONDS, remaining))
        self._owes -= 1
        return _content(self._answers.popleft())


def _content(answer: Message) -> Message:
    """The body of ``done``, with the attachments that came beside it."""
    done, failed = answer.get("done"), answer.get("failed")
    if not isinstance(done, dict):
        raise ModelFailed(failed if isinstance(failed, str) else "gave no answer")
    if ATTACHMENTS in answer:
        done[ATTACHMENTS] = answer[ATTACHMENTS]
    return done


def _end_all(running: list[WorkerProcess]) -> None:
    for process in running:
        process.end()
    running.clear()

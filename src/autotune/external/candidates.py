"""Building and running one candidate after the other: what a measurer makes outcomes of."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, one_line
from autotune.external.program import ExternalProgram, Read, Validation
from autotune.external.worker import call_function, saved_outputs
from autotune.measure.jobs import Dispatcher, Reply
from autotune.measure.trial import Trial
from autotune.process import THREAD_VARIABLES
from autotune.process.channel import Message
from autotune.process.errors import TimeIsOver
from autotune.process.keeper_process import describe_exit
from autotune.sketches import Candidate
from autotune.spaces.parameters import Value
from autotune.store.records import Outcome

__all__ = ["CUT_OFF", "ExternalTrial", "Runner", "build_failure", "run_failure", "seconds_of"]

CUT_OFF = 3.0
"""A candidate whose first run takes so many times what the best one takes gets no other."""
_LARGEST_HASHED = 256 << 20
# What a worker may take longer than the time of a job: it ends that by itself.
_GRACE_SECONDS = 15.0


@define(eq=False)
class ExternalTrial(Trial):
    """A candidate on its way to an outcome; ``binary`` is "" where nothing is built.

    Attributes:
        config: Its values.
        folder: Its own, made when it is built.
        is_built: Whether it can be run.
        is_posted: Whether a worker is building it.
    """

    config: Mapping[str, Value] = field(kw_only=True)
    folder: Path = field(kw_only=True)
    is_built: bool = False
    is_posted: bool = False

    def remove(self) -> None:
        """Remove its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _complete(self, outcome: Outcome) -> Outcome:
        self.remove()
        self.timings.update(outcome.timings)
        return evolve(super()._complete(outcome), timings=dict(self.timings))


class Runner:
    """Builds and runs candidates of a program, at most one of them while nothing is built.

    Args:
        program: The program.
        dispatcher: Of the workers.
        folder: In which candidates have theirs.
        threads: Threads that it may use.
        is_late: Whether the time is over.

    Attributes:
        reference: What is right; None until it is known, or where nothing is checked.
    """

    def __init__(
        self,
        program: ExternalProgram,
        dispatcher: Dispatcher,
        folder: Path,
        threads: int,
        is_late: Callable[[], bool],
    ) -> None:
        self._program = program
        self._dispatcher = dispatcher
        self._folder = folder
        self._is_late = is_late
        self._environment = {
            **dict.fromkeys(THREAD_VARIABLES, str(threads)),
            **program.environment,
        }
        self._threads = threads
        self._made = 0
        self.reference = self._given_reference()

    @property
    def needs_reference(self) -> bool:
        """True if the default configuration has to be run first, to know what is right."""
        return self._program.validation is not None and self.reference is None

    def trial(self, candidate: Candidate | None, config: Mapping[str, Value]) -> ExternalTrial:
        """A candidate that is to be built; None is the default configuration."""
        self._made += 1
        folder = self._folder / f"candidate-{self._made}"
        return ExternalTrial(self._made, candidate, config=config, folder=folder)

    def post_build(self, trial: ExternalTrial) -> None:
        """Begin to build a candidate, and return at once; again, it does nothing."""
        if trial.is_posted or trial.is_built or trial.outcome is not None:
            return
        trial.folder.mkdir(exist_ok=True)
        build = self._program.build
        if build is None:
            trial.is_built = True
            return
        trial.is_posted = True
        self._dispatcher.post(
            self._command(
                "build", build.command.filled(self._values(trial)), trial, build.timeout
            ),
            {"build": build.timeout + _GRACE_SECONDS},
            partial(self._built, trial),
        )

    def await_builds(self, trials: Sequence[ExternalTrial]) -> None:
        """Wait until each is built, or has failed.

        Raises:
            TimeIsOver: there is no time left to wait.
        """
        while not all(it.is_built or it.outcome is not None for it in trials):
            for trial in trials:
                self.post_build(trial)
            if self._program.build is not None:
                self._dispatcher.pump()

    def measure(self, trial: ExternalTrial, limit: float | None) -> None:
        """Run a built candidate as often as the program says; it ends with an outcome.

        Args:
            trial: The candidate.
            limit: Seconds; a first timed run above them is the only one.
        """
        run = self._program.run
        if self._program.is_called:
            failure = self._call(trial, run.warmup + run.repeats, run.warmup, limit)
        else:
            failure = self._run(trial, run.warmup + run.repeats, run.warmup, limit)
        if failure is not None:
            trial.take(failure)
        else:
            trial.finish()

    def sample(self, trial: ExternalTrial) -> float | None:
        """Seconds of one more run of a built candidate; None where it has failed and ended."""
        count = len(trial.samples)
        how = self._call if self._program.is_called else self._run
        failure = how(trial, self._program.run.warmup * self._program.is_called + 1, 0, None)
        if failure is not None:
            trial.take(failure)
            return None
        del trial.samples[count : len(trial.samples) - 1]
        return trial.samples[-1]

    def _values(self, trial: ExternalTrial) -> dict[str, Value]:
        return {
            **trial.config,
            "workdir": str(trial.folder),
            "output": str(trial.folder / "output"),
            "threads": self._threads,
        }

    def _command(
        self, phase: str, words: Sequence[str], trial: ExternalTrial, timeout: float
    ) -> Message:
        settings = {
            "words": list(words),
            "directory": str(self._program.directory),
            "environment": {**os.environ, **self._environment},
            "folder": str(trial.folder),
            "timeout": timeout,
        }
        return {"op": "command", "phase": phase, "settings": settings}

    def _built(self, trial: ExternalTrial, reply: Reply) -> None:
        build = self._program.build
        assert build is not None
        trial.is_posted = False
        if reply.kind in ("lost", "again"):
            trial.lose(blame=reply.kind == "lost")
            return
        body = _body(reply)
        failure = build_failure(body, build.timeout)
        if failure is not None:
            trial.take(failure)
            return
        trial.timings["build"] = float(body["seconds"])
        trial.binary = self._binary(trial)
        trial.is_built = True

    def _ask(self, trial: ExternalTrial, message: Message, seconds: float) -> Message:
        """Have a job done alone; the result.

        Raises:
            TimeIsOver: there is no time left to wait.
        """
        replies: list[Reply] = []
        while trial.outcome is None:
            while not self._dispatcher.pool.idle:
                self._dispatcher.pump()
            replies.clear()
            self._dispatcher.post(message, {"run": seconds + _GRACE_SECONDS}, replies.append)
            while not replies:
                self._dispatcher.pump()
            if replies[0].kind not in ("lost", "again"):
                return _body(replies[0])
            trial.lose(blame=replies[0].kind == "lost")
        return {"died": trial.outcome.message}

    def _binary(self, trial: ExternalTrial) -> str:
        """Digest of all that a build has left, and of the command that is to run it."""
        command = self._program.run.command
        if command is None:
            return ""
        values = {**self._values(trial), "workdir": "", "output": ""}
        found = hashlib.sha256(repr(command.filled(values)).encode())
        left = [path for path in sorted(trial.folder.rglob("*")) if path.is_file()]
        made = [path for path in left if path.name not in ("stdout", "stderr")]
        if not made or sum(path.stat().st_size for path in made) > _LARGEST_HASHED:
            return ""
        for path in made:
            content = path.read_bytes()
            name = path.relative_to(trial.folder)
            found.update(f"{name} {len(content)} ".encode() + content)
        return found.hexdigest()[:16]

    def _run(
        self, trial: ExternalTrial, runs: int, skipped: int, limit: float | None
    ) -> Outcome | None:
        """Run a command several times; the outcome if it fails."""
        run = self._program.run
        assert run.command is not None
        words = run.command.filled(self._values(trial))
        message = self._command("run", words, trial, run.timeout)
        for number in range(runs):
            # What an earlier run has written is no output of this one.
            (trial.folder / "output").unlink(missing_ok=True)
            body = self._ask(trial, message, run.timeout)
            if (failure := run_failure(body, run.timeout)) is not None:
                return failure
            self._spend(trial, float(body["seconds"]))
            seconds = seconds_of(self._program, body)
            if isinstance(seconds, Outcome):
                return seconds
            if number == 0 and (wrong := self._check(trial)) is not None:
                return wrong
            if number >= skipped:
                trial.samples.append(seconds)
                if limit is not None and seconds > limit:
                    break
        return None

    def _call(
        self, trial: ExternalTrial, calls: int, skipped: int, limit: float | None
    ) -> Outcome | None:
        """Call a function several times; the outcome if it fails."""
        body = self._called(trial, calls, skipped, limit)
        self._spend(trial, float(body.get("seconds", 0.0)))
        if (failure := run_failure(body, self._program.run.timeout)) is not None:
            return failure
        for number, call in enumerate(body["calls"]):
            seconds = seconds_of(self._program, call)
            if isinstance(seconds, Outcome):
                return seconds
            if number == 0 and (wrong := self._check(trial)) is not None:
                return wrong
            if number >= skipped:
                trial.samples.append(seconds)
        if len(body["calls"]) <= skipped:
            return Outcome("crash", message="the process ended by itself before it was done")
        return None

    def _called(
        self, trial: ExternalTrial, calls: int, skipped: int, limit: float | None
    ) -> Message:
        run, function = self._program.run, self._program.function
        settings: dict[str, Any] = {
            "config": dict(trial.config),
            "directory": str(self._program.directory),
            "environment": self._environment,
            "folder": str(trial.folder),
            "timeout": run.timeout,
            "calls": calls,
            "skipped": skipped,
            "limit": None if limit is None else self._number(limit),
        }
        if function is None:
            message = {"op": "call", "phase": "run", "function": run.function}
            seconds = run.timeout * (calls + 1)
            return self._ask(trial, {**message, "settings": settings}, seconds)
        while not self._dispatcher.pool.idle:
            self._dispatcher.pump()
        body = call_function(lambda: function, is_late=self._is_late, **settings)
        if body["ended"] == "late":
            raise TimeIsOver("the time is over, and a candidate is being run")
        return body

    def _number(self, seconds: float) -> float:
        """The result that counts as so many seconds; no limit where a rate is to be large."""
        scale = self._program.seconds(1.0)
        return float("inf") if self._program.unit.startswith("1/") else seconds / scale

    def _check(self, trial: ExternalTrial) -> Outcome | None:
        """Hold the outputs of a run against what is right; the first that is run says that."""
        validation = self._program.validation
        if validation is None:
            return None
        paths = [trial.folder / "output"]
        if self._program.is_called:
            paths = saved_outputs(trial.folder)
        try:
            if not paths:
                raise InvalidValueError("it returned no outputs")
            found = read_outputs(paths, validation)
        except InvalidValueError as error:
            return Outcome("wrong_result", message=str(error))
        if self.reference is None:
            self.reference = found
            return None
        wrong = difference(found, self.reference, validation)
        return Outcome("wrong_result", message=wrong) if wrong else None

    def _given_reference(self) -> Outputs | None:
        validation = self._program.validation
        if validation is None or not validation.reference:
            return None
        return read_outputs([self._program.directory / validation.reference], validation)

    def _spend(self, trial: ExternalTrial, seconds: float) -> None:
        trial.timings["run"] = trial.timings.get("run", 0.0) + seconds


def _body(reply: Reply) -> Message:
    """Result of a job: what the worker says, or ``{"died": how}``."""
    return reply.body if reply.kind == "done" else {"died": reply.message}


NUMERIC = "biufc"
"""Kinds of element types that can be compared."""
_MAGIC = b"\x93NUMPY"
_LARGEST = 4 << 30
Array = NDArray[Any]


@frozen(eq=False)
class Outputs:
    """Arrays that a run has computed, in order."""

    arrays: tuple[Array, ...]


def read_outputs(paths: Sequence[Path], validation: Validation) -> Outputs:
    """Outputs from files: ``.npy``, or the bytes of elements of ``validation.dtype``.

    Raises:
        InvalidValueError: a file is missing, too large, or no array.
    """
    return Outputs(tuple(_read(path, validation) for path in paths))


def _read(path: Path, validation: Validation) -> Array:
    try:
        if path.stat().st_size > _LARGEST:
            raise InvalidValueError(f"the output has more than {_LARGEST} bytes")
        data = path.read_bytes()
    except OSError:
        raise InvalidValueError("it wrote no output") from None
    if data.startswith(_MAGIC):
        try:
            array = np.asarray(np.load(io.BytesIO(data), allow_pickle=False))
        except (ValueError, EOFError, OSError) as error:
            raise InvalidValueError(f"its output is no array: {error}") from None
        if array.dtype.kind not in NUMERIC:
            raise InvalidValueError(f"its output is an array of {array.dtype}, and not of numbers")
        return array
    dtype = np.dtype(validation.dtype or "uint8")
    if not validation.dtype and validation.method == "allclose":
        raise InvalidValueError(
            "its output is no .npy file: say what its elements are (validate.dtype), or that "
            "bytes are compared (validate.method = 'bitexact')"
        )
    if len(data) % dtype.itemsize:
        raise InvalidValueError(
            f"its output of {len(data)} bytes is no whole number of {dtype.name}"
        )
    return np.frombuffer(data, dtype=dtype)


def difference(found: Outputs, wanted: Outputs, validation: Validation) -> str:
    """Describe an output that is not right within the bounds; "" where all are."""
    if len(found.arrays) != len(wanted.arrays):
        return f"it has {len(found.arrays)} outputs and not {len(wanted.arrays)}"
    for number, (own, right) in enumerate(zip(found.arrays, wanted.arrays, strict=True)):
        if why := _array_difference(own, right, validation):
            return f"output {number}: {why}" if len(wanted.arrays) > 1 else why
    return ""


def _array_difference(own: Array, right: Array, validation: Validation) -> str:
    if own.shape != right.shape:
        return f"its output has shape {list(own.shape)} and not {list(right.shape)}"
    if own.dtype != right.dtype:
        return f"its output is {own.dtype} and not {right.dtype}"
    if validation.method == "bitexact":
        wrong = _bytes(own) != _bytes(right)
        share = float(wrong.mean()) if wrong.size else 0.0
        return f"{share:.3%} of the bytes of its output differ" if share else ""
    close = np.isclose(own, right, rtol=validation.rtol, atol=validation.atol, equal_nan=True)
    if close.all():
        return ""
    with np.errstate(all="ignore"):
        worst = float(np.nanmax(np.abs(own.astype(np.complex128) - right.astype(np.complex128))))
    share = 1 - float(close.mean())
    return (
        f"{share:.3%} of its output differs by more than rtol={validation.rtol:g}, "
        f"atol={validation.atol:g}; at most by {worst:.3g}"
    )


def _bytes(array: Array) -> NDArray[np.uint8]:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), dtype=np.uint8)


_SHOWN = 200
_MESSAGE = 2000


class _NoResult(ValueError):
    """There is no number; the message says why."""


def build_failure(body: Message, timeout: float) -> Outcome | None:
    """The outcome of a build that has failed, with the last words of the compiler; or None.

    Args:
        body: As of :func:`autotune.external.worker.run_command`, or ``{"died": how}``.
        timeout: Seconds that it could take.
    """
    timings = {"build": float(body.get("seconds", 0.0))}
    if (early := _ended_early(body, "build", timeout)) is not None:
        return Outcome(early[0], timings=timings, message=early[1])
    if body["status"] == 0:
        return None
    said = body["stderr"].strip() or body["stdout"].strip()
    how = describe_exit(body["status"])
    return Outcome("build_error", timings=timings, message=f"{how}{_words(said)}")


def run_failure(body: Message, timeout: float) -> Outcome | None:
    """The outcome of a run that has failed, or None; as of :func:`build_failure`."""
    timings = {"run": float(body.get("seconds", 0.0))}
    if (early := _ended_early(body, "run", timeout)) is not None:
        return Outcome(early[0], timings=timings, message=early[1])
    if body.get("raised"):
        return Outcome("crash", timings=timings, message=f"it raised {body['raised']}")
    if body["status"] == 0:
        return None
    said = body["stderr"].strip() or body["stdout"].strip()
    message = f"{describe_exit(body['status'])} in run{_words(said)}"
    return Outcome("crash", timings=timings, message=message)


def seconds_of(program: ExternalProgram, body: Message) -> float | Outcome:
    """Seconds that a run counts as, or the outcome of a run whose result is none.

    Args:
        program: Says where the result is.
        body: Of one run, or ``wall`` and ``value`` of a call.
    """
    try:
        number = _number(program.read, body)
        if not math.isfinite(number) or number <= 0:
            raise _NoResult(f"the result is {number!r}; it must be a positive number")
        seconds = program.seconds(number)
        if not 0 < seconds < math.inf:
            raise _NoResult(f"the result {number!r} {program.unit} is beyond all times")
    except _NoResult as error:
        return Outcome("invalid", message=str(error))
    return seconds


def _number(read: Read, body: Message) -> float:
    if read.source == "wall":
        return float(body["wall"] if "wall" in body else body["seconds"])
    if read.source == "function":
        if body["value"] is None:
            raise _NoResult("the function returned None, and no seconds")
        return float(body["value"])
    printed = body["stdout"]
    if read.source == "json":
        return _field(printed, read.field)
    match = re.search(read.pattern, printed)
    if match is None:
        raise _NoResult(f"{read.pattern!r} matches nothing in {_shown(printed)}")
    try:
        return float(match[1])
    except (TypeError, ValueError):
        raise _NoResult(f"{read.pattern!r} finds {match[1]!r}, which is no number") from None


def _field(printed: str, path: str) -> float:
    found = _parsed(printed)
    for key in path.split("."):
        if not isinstance(found, dict) or key not in found:
            raise _NoResult(f"there is no field {path!r} in {_shown(printed)}")
        found = found[key]
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise _NoResult(f"field {path!r} is {found!r:.80}, which is no number")
    try:
        return float(found)
    except OverflowError:
        raise _NoResult(f"field {path!r} is larger than any time") from None


def _parsed(printed: str) -> Any:
    """The JSON that is all of it, or its last line."""
    for text in (printed, printed.strip().rpartition("\n")[2]):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    raise _NoResult(f"it printed no JSON: {_shown(printed)}")


def _ended_early(body: Message, phase: str, timeout: float) -> tuple[str, str] | None:
    """Status and message of what was killed, or never started."""
    if "died" in body:
        return "crash", f"the worker was lost in {phase}: {body['died']}"
    if body["ended"] == "timeout":
        return "timeout", f"{phase} took longer than {timeout:g} s"
    if body["ended"] == "output":
        return "invalid", f"{phase} printed more than can be kept"
    if body["status"] is None:
        return ("build_error" if phase == "build" else "crash"), body["stderr"]
    return None


def _words(said: str) -> str:
    return f": {said[-_MESSAGE:]}" if said else ""


def _shown(text: str) -> str:
    return repr(one_line(text, _SHOWN)) if text.strip() else "what it printed, which is nothing"

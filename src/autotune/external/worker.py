"""The worker of external programs: speaks as :mod:`autotune.measure.worker`, and runs commands.

Started by :class:`~autotune.measure.pool.WorkerPool` under a keeper, so that all that it has
started goes with it and with the host.
"""

from __future__ import annotations

import hashlib
import importlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from autotune.errors import InvalidValueError, attribute_of
from autotune.external.processes import Call, Ended, Isolation, saved_outputs
from autotune.external.program import CommandTemplate, ExternalProgram
from autotune.external.results import (
    Array,
    NoResult,
    difference,
    read_outputs,
    require_success,
    seconds_of,
)
from autotune.external.specs import program_of_text
from autotune.ir.workloads import Workload
from autotune.process import THREAD_VARIABLES
from autotune.process.channel import Message
from autotune.process.child import Handler, connect, serve
from autotune.process.errors import TimeIsOver
from autotune.sketches import Candidate
from autotune.spaces.parameters import Value
from autotune.store.records import Outcome

__all__ = ["CUT_OFF", "MODULE", "ExternalTask", "main"]

MODULE = "autotune.external.worker"
CUT_OFF = 3.0
"""A candidate whose first run takes so many times what the best one takes gets no other."""
_LARGEST_HASHED = 256 << 20


@define(eq=False)
class _Made:
    """A candidate that can be run.

    Attributes:
        config: Its values.
        folder: Its own.
        timings: Seconds by phase.
    """

    config: Mapping[str, Value]
    folder: Path
    timings: dict[str, float] = field(factory=dict)

    def remove(self) -> None:
        """Remove its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


class ExternalTask:
    """A program whose candidates are built and run, one at a time.

    Args:
        program: The program.
        message: How the host tells it.
        phase: Announces what begins to a host, which has a deadline for it.
        is_late: Asked while something runs: whether to give it up.
    """

    def __init__(
        self,
        program: ExternalProgram,
        message: Message,
        phase: Callable[[str], AbstractContextManager[None]],
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        # By the numbers of their trials.
        self._made: dict[int, _Made] = {}
        self._program = program
        self._phase = phase
        self._is_late = is_late
        self._name, self._ships = message["task"], message["ships"]
        self._workload = Workload.from_json(message["workload"])
        # No command has to mind spaces.
        self._folder = Path(message["folder"], self._name.replace(" ", "-"))
        self._folder.mkdir(exist_ok=True)
        self._values: Mapping[str, Value] = {"threads": message["threads"]}
        threads = dict.fromkeys(THREAD_VARIABLES, str(message["threads"]))
        self._variables = {**threads, **program.environment}
        self._environment = {**message["environment"], **self._variables}
        check = program.validation
        self._right: list[Array] | None = None
        if check is not None and check.reference:
            self._right = read_outputs([program.directory / check.reference], check)

    def do(self, message: Message) -> Message:
        """Do a job: build, run or sample a candidate, or forget some.

        Raises:
            TimeIsOver: it was given up.
        """
        jobs = {"build": self._build, "run": self._run, "sample": self._sample}
        return jobs.get(message["op"], self._forget)(message)

    def hold(self, shipped: Message) -> None:
        """Hold what another process has built: its ``device_program``."""
        folder, timings = Path(shipped["folder"]), dict(shipped["timings"])
        self._made[shipped["number"]] = _Made(shipped["config"], folder, timings)

    def close(self) -> None:
        """Forget every candidate."""
        self._forget({"numbers": list(self._made)})

    def _forget(self, message: Message) -> Message:
        for number in message["numbers"]:
            if number in self._made:
                self._made.pop(number).remove()
        return {}

    def _build(self, message: Message) -> Message:
        """Build a candidate and hold it; answers with an outcome on failure.

        What another process is to run is answered as its ``device_program``, and not held.
        """
        began, number = time.monotonic(), message["number"]
        made = _Made(self._config(message["candidate"]), self._folder / f"candidate-{number}")
        made.remove()
        made.folder.mkdir()
        binary = ""
        try:
            with self._phase("build"):
                if (build := self._program.build) is not None:
                    self._command("build", build.command, build.timeout, made)
                    binary = self._binary(made)
        except NoResult as error:
            made.remove()
            return _failure(error, made)
        answer: Message = {
            "lowered": "",
            "binary": binary,
            "timings": made.timings,
            "span": [began, time.monotonic()],
            "readings": {},
        }
        if self._ships:
            told = {"task": self._name, "number": number, "config": made.config}
            where = {"folder": str(made.folder), "timings": made.timings}
            return {**answer, "device_program": {**told, **where}}
        self._made[number] = made
        return answer

    def _run(self, message: Message) -> Message:
        """Run a candidate as often as the program says; answers with an outcome on failure."""
        run, incumbent = self._program.run, message["incumbent"]
        limit = None if incumbent is None else CUT_OFF * incumbent
        return self._timed(message["number"], run.repeats, run.warmup, limit)

    def _sample(self, message: Message) -> Message:
        """Run a candidate that was run before some times more."""
        warmup = self._program.run.warmup if self._program.is_called else 0
        return self._timed(message["number"], message["count"], warmup, None)

    def _timed(self, number: int, runs: int, skipped: int, limit: float | None) -> Message:
        """Samples of so many runs after those skipped; one above the limit is the last."""
        made, samples = self._made[number], list[float]()
        how = self._calls if self._program.is_called else self._runs
        try:
            for call, printed in how(made, runs + skipped, skipped, limit):
                samples.append(seconds_of(self._program, call, printed))
                if len(samples) == 1:
                    self._check(made)
                if limit is not None and len(samples) > skipped and samples[-1] > limit:
                    break
            if len(samples) <= skipped:
                raise NoResult("crash", "the process ended by itself before it was done")
        except NoResult as error:
            return _failure(error, made)
        del samples[:skipped]
        return {"samples": samples, "calls": 1, "timings": made.timings, "readings": {}}

    def _runs(self, made: _Made, runs: int, *_: object) -> Iterator[tuple[Call, str]]:
        """Runs of the command, and what each printed."""
        run = self._program.run
        assert run.command is not None
        for _run in range(runs):
            # What an earlier run has written is no output of this one.
            (made.folder / "output").unlink(missing_ok=True)
            with self._phase("run"):
                ended = self._command("run", run.command, run.timeout, made)
            yield Call(ended.seconds), ended.stdout

    def _calls(
        self, made: _Made, calls: int, skipped: int, limit: float | None
    ) -> Iterator[tuple[Call, str]]:
        """Calls of the function, which are all made in one process."""
        program, timeout = self._program, self._program.run.timeout
        assert program.function is not None
        # Of a rate, which is to be large, there is no limit.
        most = None if limit is None or program.is_rate else program.value(limit)
        around = self._around(made, self._variables, timeout)
        with self._phase("run"):
            ended = around.call(program.function, made.config, calls, skipped, most)
        self._require("run", ended, timeout, made)
        yield from ((call, "") for call in ended.calls)

    def _command(self, phase: str, command: CommandTemplate, timeout: float, made: _Made) -> Ended:
        """Run a command of a candidate to its end."""
        paths = {"workdir": str(made.folder), "output": str(made.folder / "output")}
        words = command.filled({**made.config, **self._values, **paths})
        ended = self._around(made, self._environment, timeout).run(words)
        self._require(phase, ended, timeout, made)
        return ended

    def _around(self, made: _Made, environment: Mapping[str, str], timeout: float) -> Isolation:
        directory = self._program.directory
        return Isolation(directory, environment, made.folder, timeout, self._is_late)

    def _require(self, phase: str, ended: Ended, timeout: float, made: _Made) -> None:
        made.timings[phase] = made.timings.get(phase, 0.0) + ended.seconds
        if ended.ended == "late":
            raise TimeIsOver("the time is over, and a candidate is being run")
        require_success(ended, phase, timeout)

    def _config(self, candidate: Message | None) -> Mapping[str, Value]:
        if candidate is None:
            return self._program.default or {}
        values = Candidate.from_json(candidate, self._workload).config
        return {it.name: it.decode(values[it.name]) for it in self._program.parameters}

    def _binary(self, made: _Made) -> str:
        """Digest of all that a build has left, and of the command that is to run it."""
        command = self._program.run.command
        if command is None:
            return ""
        values = {**made.config, **self._values, "workdir": "", "output": ""}
        found = hashlib.sha256(repr(command.filled(values)).encode())
        files = [path for path in sorted(made.folder.rglob("*")) if path.is_file()]
        left = [path for path in files if path.name not in ("stdout", "stderr")]
        if not left or sum(path.stat().st_size for path in left) > _LARGEST_HASHED:
            return ""
        for path in left:
            content = path.read_bytes()
            name = path.relative_to(made.folder)
            found.update(f"{name} {len(content)} ".encode() + content)
        return found.hexdigest()[:16]

    def _check(self, made: _Made) -> None:
        """Hold the outputs of a run against what is right; those of the default say that.

        Raises:
            NoResult: there are none, or they are wrong.
        """
        check = self._program.validation
        if check is None:
            return
        try:
            paths = self._outputs(made.folder)
            if not paths:
                raise InvalidValueError("it returned no outputs")
            found = read_outputs(paths, check)
        except InvalidValueError as error:
            raise NoResult("wrong_result", str(error)) from None
        if self._right is None:
            kept = self._folder / "right"
            if not kept.exists():
                # The default comes first, while nothing else is run.
                new = self._folder / "new"
                new.mkdir(exist_ok=True)
                for path in paths:
                    shutil.copy(path, new)
                new.rename(kept)
            self._right = read_outputs(self._outputs(kept), check)
        if wrong := difference(found, self._right, check):
            raise NoResult("wrong_result", wrong)

    def _outputs(self, folder: Path) -> list[Path]:
        return saved_outputs(folder) if self._program.is_called else [folder / "output"]


def _failure(error: NoResult, made: _Made) -> Message:
    outcome = Outcome(error.status, timings=made.timings, message=str(error))
    return {"outcome": outcome.to_json()}


def _loaded_function(name: str) -> Callable[..., Any]:
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
    tasks: dict[str, ExternalTask] = {}

    def hello(_message: Message) -> Message:
        with connection.phase("start"):
            return {}

    def release(message: Message) -> Message:
        if message["task"] in tasks:
            tasks.pop(message["task"]).close()
        return {}

    def set_task(message: Message) -> Message:
        with connection.phase("task"):
            release(message)
            program = program_of_text(message["program"], message["directory"])
            if program.is_called and not message["ships"]:
                # Imported once: what the calls are forked from has it already.
                sys.path.insert(0, message["directory"])
                program = evolve(program, function=_loaded_function(program.run.function))
            tasks[message["task"]] = ExternalTask(program, message, connection.phase)
        return {}

    def do(message: Message) -> Message:
        return tasks[message["task"]].do(message)

    jobs: dict[str, Handler] = dict.fromkeys(("build", "run", "sample", "forget"), do)
    serve(connection, {"hello": hello, "task": set_task, "release": release, **jobs})

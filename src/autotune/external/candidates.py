"""Building and running one candidate after the other: what a measurer makes outcomes of."""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from autotune.errors import InvalidValueError
from autotune.external.jobs import call_function, saved_outputs
from autotune.external.program import ExternalProgram
from autotune.external.reading import build_failure, run_failure, seconds_of
from autotune.external.validation import Outputs, difference, read_outputs
from autotune.external.workers import JobWorkers
from autotune.measure.racing import rounded
from autotune.process import THREAD_VARIABLES
from autotune.process.channel import Message
from autotune.process.errors import TimeIsOver
from autotune.spaces.parameters import Value
from autotune.store.records import Outcome

__all__ = ["CUT_OFF", "Runner", "Trial"]

CUT_OFF = 3.0
"""A candidate whose first run takes so many times what the best one takes gets no other."""
_LARGEST_HASHED = 256 << 20


@define(eq=False)
class Trial:
    """A candidate on its way to an outcome.

    Attributes:
        digest: Of the candidate; "" for the default configuration.
        config: Its values.
        folder: Its own, made when it is built.
        outcome: How it ended, once that is known.
        is_built: Whether it can be run.
        binary: Digest of what its build has made, with the command that runs it; "" where nothing
            is built.
        timings: Seconds by phase.
        samples: Seconds of its timed runs.
    """

    digest: str
    config: Mapping[str, Value]
    folder: Path
    outcome: Outcome | None = None
    is_built: bool = False
    is_posted: bool = False
    binary: str = ""
    timings: dict[str, float] = field(factory=dict)
    samples: list[float] = field(factory=list)

    def end(self, outcome: Outcome) -> None:
        """End with this outcome, with what is known beside it."""
        self.timings.update(outcome.timings)
        self.outcome = evolve(outcome, binary=self.binary, timings=dict(self.timings))
        self.remove()

    def remove(self) -> None:
        """Remove its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Runner:
    """Builds and runs candidates of a program.

    Args:
        program: The program.
        workers: Where.
        threads: Threads that it may use.
        is_late: Whether the time is over.

    Attributes:
        reference: What is right; None until it is known, or where nothing is checked.
    """

    def __init__(
        self,
        program: ExternalProgram,
        workers: JobWorkers,
        threads: int,
        is_late: Callable[[], bool],
    ) -> None:
        self._program = program
        self._workers = workers
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
        """Whether the default configuration has to be run first, to know what is right."""
        return self._program.validation is not None and self.reference is None

    def trial(self, digest: str, config: Mapping[str, Value]) -> Trial:
        """A candidate that is to be built."""
        self._made += 1
        return Trial(digest, config, self._workers.folder / f"candidate-{self._made}")

    def post_build(self, trial: Trial) -> None:
        """Begin to build a candidate, and return at once; again, it does nothing."""
        if trial.is_posted or trial.outcome is not None:
            return
        trial.is_posted = True
        trial.folder.mkdir(exist_ok=True)
        build = self._program.build
        if build is None:
            trial.is_built = True
            return
        words = build.command.filled(self._values(trial))
        self._workers.post(
            self._command(words, trial, build.timeout),
            build.timeout,
            lambda body: self._built(trial, body),
        )

    def await_builds(self, trials: Sequence[Trial]) -> None:
        """Wait until each is built, or has failed.

        Raises:
            TimeIsOver: there is no time left to wait.
        """
        for trial in trials:
            self.post_build(trial)
        self._workers.wait(lambda: all(it.is_built or it.outcome is not None for it in trials))

    def measure(self, trial: Trial, limit: float | None) -> None:
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
        trial.end(failure or _timed(trial.samples))

    def sample(self, trial: Trial) -> float | None:
        """Seconds of one more run of a built candidate; None where it has failed and ended."""
        count = len(trial.samples)
        how = self._call if self._program.is_called else self._run
        failure = how(trial, self._program.run.warmup * self._program.is_called + 1, 0, None)
        if failure is not None:
            trial.end(failure)
            return None
        del trial.samples[count : len(trial.samples) - 1]
        return trial.samples[-1]

    def finish(self, trial: Trial) -> None:
        """End a candidate as ok, with the samples that there are."""
        trial.end(_timed(trial.samples))

    def _values(self, trial: Trial) -> dict[str, Value]:
        return {
            **trial.config,
            "workdir": str(trial.folder),
            "output": str(trial.folder / "output"),
            "threads": self._threads,
        }

    def _command(self, words: Sequence[str], trial: Trial, timeout: float) -> Message:
        return {
            "op": "command",
            "words": list(words),
            "directory": str(self._program.directory),
            "environment": {**os.environ, **self._environment},
            "folder": str(trial.folder),
            "timeout": timeout,
        }

    def _built(self, trial: Trial, body: Message) -> None:
        build = self._program.build
        assert build is not None
        failure = build_failure(body, build.timeout)
        if failure is not None:
            trial.end(failure)
            return
        trial.timings["build"] = float(body["seconds"])
        trial.binary = self._binary(trial)
        trial.is_built = True

    def _binary(self, trial: Trial) -> str:
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

    def _run(self, trial: Trial, runs: int, skipped: int, limit: float | None) -> Outcome | None:
        """Run a command several times; the outcome if it fails."""
        run = self._program.run
        assert run.command is not None
        message = self._command(run.command.filled(self._values(trial)), trial, run.timeout)
        for number in range(runs):
            # What an earlier run has written is no output of this one.
            (trial.folder / "output").unlink(missing_ok=True)
            body = self._workers.ask(message, run.timeout)
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

    def _call(self, trial: Trial, calls: int, skipped: int, limit: float | None) -> Outcome | None:
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

    def _called(self, trial: Trial, calls: int, skipped: int, limit: float | None) -> Message:
        run, function = self._program.run, self._program.function
        settings: dict[str, Any] = {
            "directory": str(self._program.directory),
            "environment": self._environment,
            "folder": str(trial.folder),
            "timeout": run.timeout,
            "calls": calls,
            "skipped": skipped,
            "limit": None if limit is None else self._number(limit),
        }
        if function is None:
            message = {"op": "call", "function": run.function, "config": dict(trial.config)}
            return self._workers.ask({**message, **settings}, run.timeout * (calls + 1))
        body = call_function(lambda: function, trial.config, is_late=self._is_late, **settings)
        if body["ended"] == "late":
            raise TimeIsOver("the time is over, and a candidate is being run")
        return body

    def _number(self, seconds: float) -> float:
        """The result that counts as so many seconds; no limit where a rate is to be large."""
        scale = self._program.seconds(1.0)
        return float("inf") if self._program.unit.startswith("1/") else seconds / scale

    def _check(self, trial: Trial) -> Outcome | None:
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

    def _spend(self, trial: Trial, seconds: float) -> None:
        trial.timings["run"] = trial.timings.get("run", 0.0) + seconds


def _timed(samples: Sequence[float]) -> Outcome:
    return Outcome("ok", rounded(statistics.median(samples)), tuple(samples))

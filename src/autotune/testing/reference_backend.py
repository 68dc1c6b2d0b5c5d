"""A backend without a compiler, for tests: exact outputs, virtual time, scripted faults.

Outputs come from executing the candidate's symbolic loop nest in numpy; latencies are a
function of the candidate's values and a seed, and no time passes. What goes wrong is scripted:
a JSON object, given as the request's program text or in the environment variable
``AUTOTUNE_REFERENCE_BACKEND``::

    {"seed": 0, "log": "/some/file", "build_seconds": 0.0,
     "drift_factor": 1.0, "drift_seconds": 0.5,
     "faults": [{"fault": "crash", "phase": "run", "candidate": "0123456789abcdef"},
                {"fault": "wrong", "where": {"tile": 4}, "inputs": 1},
                {"fault": "build_error", "every": 7, "offset": 2}]}

A fault applies to the candidate with this digest (``"baseline"``: the untuned program,
``"default"``: the default schedule), to
those with these values, or to those whose digest modulo ``every`` is ``offset``. ``phase`` is
``lower``, ``build``, ``load``, ``verify`` (the call that is checked) or ``run`` (the timed ones).
With ``inputs`` it happens only on the random inputs of that seed. What a program does wrong
although it continues: ``wrong`` (another number), ``nothing`` (no output at all), ``dirty`` (it
writes to an input), ``outside`` (it writes behind an output) and ``spoil`` (it writes to an input
and raises). One that says nonsense has the ``time`` or the ``digest`` that its fault has as
``value``. Programs that differ only in parameters named in ``"ignored"`` have one digest when
lowered; only in those named in ``"optimised_away"``, one when compiled. With ``drift_factor``
every other stretch of ``drift_seconds`` of the clock is slower by it, for all processes.

``"latencies"`` are those of programs, by digest or as above; ``"others"`` are all the others. The
schedule that programs get by default is only one of :class:`ReferenceBackendWithDefault`.
:class:`ScriptedNativeBackend` compiles programs with the built-in backend and lets the same go
wrong with them; its latencies are real where none is scripted. Those of
:class:`SimulatedNativeBackend` are virtual: what it compiles is called and checked, never timed.

With ``log``, the beginning and end of every ``build`` and ``time`` (and of ``start``, where the
script comes from the environment) are appended to that file:
``name event process monotonic-seconds candidate``, the latter ``-`` for no candidate.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import os
import resource
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import numpy as np
from attrs import evolve, field, frozen

from autotune.backends import (
    Backend,
    BoundCall,
    BuildFailed,
    BuildRequest,
    Executable,
    ImportedProgram,
    InvalidSchedule,
    LoweredProgram,
    check_arguments,
    poison_array,
)
from autotune.backends.backend import Array
from autotune.backends.native import NativeBackend
from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.ir.workloads import Workload, random_inputs, reference_outputs
from autotune.plugins import Context
from autotune.process.channel import encode
from autotune.sketches import STEP_TYPES, Candidate, is_baseline, is_default, names_used
from autotune.sketches.limits import ScheduleLimits
from autotune.targets import Target
from autotune.testing.nest_interpreter import run_candidate

__all__ = ["HANGING", "MISCONDUCT"]

HANGING = "hanging"
"""File in the temporary directory of a process that hangs, with its process id."""

_HOST_FOLDER = "autotune-"
_BLOCK_BYTES = 1 << 20
_MOST_BLOCKS = 64


def _crash() -> None:
    os.write(2, b"scripted: last words\n")
    os.kill(os.getpid(), signal.SIGSEGV)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _exit() -> NoReturn:
    os._exit(3)


def _hang() -> NoReturn:
    # Those who wait for this moment find out here.
    with open(os.path.join(tempfile.gettempdir(), HANGING), "w") as file:
        file.write(f"{os.getpid()}\n")
    _sleep()


def _sleep() -> NoReturn:
    while True:
        time.sleep(60)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _grandchild() -> NoReturn:
    # The grandchild keeps every pipe of the worker open and has no reason to end.
    if os.fork() == 0:
        os.setpgid(0, 0)
    _sleep()


def _daemon() -> NoReturn:
    # It has left the worker's session and has no parent.
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            _sleep()
        os._exit(0)
    os.waitpid(child, 0)
    _sleep()


def _garbage() -> None:
    _write_to_pipes(b"\xff\xfe garbage " * 8)


def _silence() -> NoReturn:
    _write_to_pipes(encode({"done": {"text": "the rest never comes"}})[:20])
    _sleep()


def _write_to_pipes(data: bytes) -> None:
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if descriptor > 2 and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.write(descriptor, data)
        except OSError:  # the listing's own descriptor, or a pipe's reading end
            continue


def _memory() -> None:
    kept = []
    while True:
        kept.append(np.ones(1 << 24))


def _disk() -> NoReturn:
    # Only on a small one.
    with open(os.path.join(tempfile.gettempdir(), "filling"), "wb", buffering=0) as file:
        for _ in range(_MOST_BLOCKS):
            file.write(bytes(_BLOCK_BYTES))
            os.fsync(file.fileno())
    raise RuntimeError("scripted: this disk is too large to be filled")


def _chatter() -> None:
    for _ in range(64):
        os.write(1, b"chatter " * (1 << 13))


def _folder() -> None:
    # Not what tempfile says: once the folder is gone that is /tmp, below the root of it all.
    folder = os.path.dirname(os.environ.get("TMPDIR", ""))
    if not os.path.basename(folder).startswith(_HOST_FOLDER):
        raise RuntimeError(f"scripted: {folder!r} is no folder of a host, and stays")
    shutil.rmtree(folder, ignore_errors=True)


def _files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


MISCONDUCT: Mapping[str, Callable[[], None]] = {
    "crash": _crash,
    "kill": _kill,
    "exit": _exit,
    "hang": _hang,
    "stop": _stop,
    "grandchild": _grandchild,
    "daemon": _daemon,
    "garbage": _garbage,
    "silence": _silence,
    "memory": _memory,
    "disk": _disk,
    "chatter": _chatter,
    "folder": _folder,
    "files": _files,
    "environment": os.environ.clear,
}
"""Kinds of misconduct, by name."""


REFERENCE_BACKEND = "autotune.testing.reference_backend:ReferenceBackend"
"""Import string by which a measurer finds the reference backend."""

SCRIPTED_NATIVE = "autotune.testing.reference_backend:ScriptedNativeBackend"
"""Import string of the built-in backend with scripted faults."""

SIMULATED_NATIVE = "autotune.testing.reference_backend:SimulatedNativeBackend"
"""Import string of the built-in backend with scripted faults and virtual time."""

SCRIPT_VARIABLE = "AUTOTUNE_REFERENCE_BACKEND"

_BAD_WORK = ("wrong", "nothing", "dirty", "outside", "spoil")
_NONSENSE = ("time", "digest")
FAULTS = ("invalid", "build_error", "exception", *MISCONDUCT, *_BAD_WORK, *_NONSENSE)
_PHASES = ("lower", "build", "load", "verify", "run")
_FLOP_PER_SECOND = 1e10
_BASELINE_FACTOR = 40.0


@frozen
class Fault:
    """Fault of a program; see the module's description."""

    fault: str
    phase: str
    candidate: str | None = None
    where: Mapping[str, int] | None = field(default=None, hash=False)
    every: int | None = None
    offset: int = 0
    inputs: int | None = None
    value: Any = None

    def applies(self, candidate: Candidate | None) -> bool:
        """Return whether it happens to ``candidate`` (None is the untuned program)."""
        if candidate is None or is_default(candidate):
            return self.candidate == _called(candidate)
        if self.candidate is not None:
            return self.candidate == candidate.digest
        if self.where is not None:
            return self.where.items() <= candidate.config.items()
        if self.every is not None:
            return int(candidate.digest, 16) % self.every == self.offset
        return False


@frozen
class Script:
    """The scripted faults of the reference backend."""

    seed: int = 0
    faults: tuple[Fault, ...] = ()
    log: str | None = None
    build_seconds: float = 0.0
    drift_factor: float = 1.0
    drift_seconds: float = 0.5
    ignored: tuple[str, ...] = field(default=(), converter=tuple)
    optimised_away: tuple[str, ...] = field(default=(), converter=tuple)
    latencies: Mapping[str, float] = field(factory=dict, hash=False)

    def latency(self, workload: Workload, candidate: Candidate | None) -> float:
        """Seconds that a call takes; None is the untuned program."""
        others = self.latencies.get("others")
        if others is None or is_baseline(candidate):
            others = virtual_latency(workload, candidate, self.seed)
        return self.latencies.get(_called(candidate), others)

    @staticmethod
    def read(text: str | None) -> Script:
        """The script in ``text``, else the environment's, else one without faults.

        Raises:
            InvalidValueError: the script is not understood.
        """
        text = text or os.environ.get(SCRIPT_VARIABLE)
        if not text:
            return Script()
        try:
            data = json.loads(text)
            faults = tuple(_fault(item) for item in data.pop("faults", ()))
            return Script(faults=faults, **data)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidValueError(f"not a script: {text[:200]!r}: {error!r}") from error


def _called(candidate: Candidate | None) -> str:
    """Name of a program in a script."""
    if candidate is None:
        return "baseline"
    return "default" if is_default(candidate) else candidate.digest


def _fault(data: Mapping[str, Any]) -> Fault:
    default = "verify" if data["fault"] in _BAD_WORK else "run"
    if data["fault"] in ("build_error", "exception", "digest"):
        default = "build"
    elif data["fault"] == "invalid":
        default = "lower"
    fault = Fault(**{"phase": default, **data})
    if fault.fault not in FAULTS:
        raise UnknownNameError("fault", fault.fault, FAULTS)
    if fault.phase not in _PHASES:
        raise UnknownNameError("phase", fault.phase, _PHASES)
    return fault


def virtual_latency(workload: Workload, candidate: Candidate | None, seed: int = 0) -> float:
    """Seconds that the reference backend says one call takes.

    Every parameter has a hidden best value, found by hashing; the cost grows with the square
    of the distance from it on a logarithmic scale, and five percent is noise per candidate. It
    has six digits, so that a latency that was worked out of ratios is exactly this again.
    """
    base = max(workload.flop / _FLOP_PER_SECOND, 1e-6)
    if candidate is None:
        return _rounded(base * _BASELINE_FACTOR)
    latency = base * (1 + _unit(seed, candidate.sketch.digest))
    for name, value in candidate.config.items():
        best = 5 * _unit(seed, candidate.sketch.digest, name)
        latency *= 1 + 0.25 * (math.log2(abs(value) + 1) - best) ** 2
    return _rounded(latency * (1 + 0.05 * _unit(seed, candidate.digest)))


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.6g}")


def _unit(*parts: object) -> float:
    """A number in [0, 1) that depends on ``parts`` only."""
    digest = hashlib.sha256(":".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


class ReferenceBackend(Backend):
    """Executes loop nests in numpy; see the module's description."""

    name = "reference"
    version = "1"
    worker_modules: tuple[str, ...] = ("autotune.nest", "cattrs.gen")
    simulated_times = True

    def compiler_version(self) -> str:
        return "numpy evaluator 1"

    def check_target(self, target: Target) -> None:
        """Every target will do."""

    def check_workload(self, workload: Workload) -> None:
        """So will every element type that numpy can store."""

    def limits(self, target: Target) -> ScheduleLimits:
        steps = frozenset(STEP_TYPES)
        return ScheduleLimits(steps, 1 << 16, 512, "reference backend", runs_nests=True)

    def worker_environment(self, threads: int) -> dict[str, str]:
        return {"AUTOTUNE_REFERENCE_THREADS": str(threads)}

    def warm_up(self) -> None:
        """Do nothing: there is nothing to warm up."""
        script = Script.read(None)
        _log(script, "start", "begin")
        _log(script, "start", "end")

    def imports(self, program: object) -> bool:
        return isinstance(program, ReferenceProgram)

    def import_program(self, program: object) -> ImportedProgram:
        if not isinstance(program, ReferenceProgram):
            raise UnsupportedWorkload(f"not a reference program: {type(program).__name__}")
        return ImportedProgram(program.workload, program.script)

    def lower(self, request: BuildRequest) -> LoweredProgram:
        script = Script.read(request.program)
        self._check_steps(request)
        _misbehave(script, request.candidate, "lower")
        return LoweredProgram(request, script, _digest(request, script.seed, script.ignored))

    def _check_steps(self, request: BuildRequest) -> None:
        """Refuse what the limits do not declare."""
        if request.candidate is None or is_default(request.candidate):
            return
        missing = self.limits(request.target).missing(names_used(request.candidate.sketch))
        if missing:
            raise InvalidSchedule(f"backend {self.name!r} has no step {missing[0]!r}")

    def compile(self, lowered: LoweredProgram) -> Executable:
        request, script = lowered.request, lowered.program
        _log(script, "build", "begin", request.candidate)
        try:
            if script.build_seconds:
                time.sleep(script.build_seconds)
            _misbehave(script, request.candidate, "build")
        finally:
            _log(script, "build", "end", request.candidate)
        return _ReferenceExecutable(request, script)

    def load_program(self, request: BuildRequest, path: Path) -> Executable:
        try:
            data = json.loads(path.read_text())
            stored, text = data["digest"], data["script"]
        except (ValueError, KeyError) as error:
            raise BuildFailed(f"{path.name} is no reference program: {error}") from error
        executable = _ReferenceExecutable(request, Script.read(text))
        if executable.digest != stored:
            raise BuildFailed(f"{path.name} is another program: {stored}")
        return executable

    def show(self, request: BuildRequest) -> str:
        self.lower(request)  # refuses what it cannot replay
        config = request.candidate.config if request.candidate else None
        return f"# {request.workload.name}, {request.threads} threads, config {config}"


class ScriptedNativeBackend(ReferenceBackend):
    """The built-in backend for CPUs, whose programs have scripted faults."""

    name = "scripted-native"
    worker_modules = NativeBackend.worker_modules
    simulated_times = False

    def __init__(self, context: Context | None = None) -> None:
        super().__init__(context)
        self._native = NativeBackend()

    def compiler_version(self) -> str:
        return self._native.compiler_version()

    def check_target(self, target: Target) -> None:
        self._native.check_target(target)

    def check_workload(self, workload: Workload) -> None:
        self._native.check_workload(workload)

    def limits(self, target: Target) -> ScheduleLimits:
        return self._native.limits(target)

    def warm_up(self) -> None:
        super().warm_up()
        self._native.warm_up()

    def lower(self, request: BuildRequest) -> LoweredProgram:
        scripted = super().lower(request)
        made = self._native.lower(evolve(request, program=None))
        return LoweredProgram(request, (scripted, made), scripted.digest)

    def compile(self, lowered: LoweredProgram) -> Executable:
        scripted, made = lowered.program
        return self._scripted(super().compile(scripted), self._native.compile(made))

    def load_program(self, request: BuildRequest, path: Path) -> Executable:
        with TemporaryDirectory() as folder:
            script, program = (Path(folder, name) for name in ("script", "program"))
            text, _, code = path.read_bytes().partition(b"\n")
            script.write_bytes(text)
            program.write_bytes(code)
            scripted = super().load_program(request, script)
            return self._scripted(scripted, self._native.load_program(request, program))

    def _scripted(self, scripted: Executable, program: Executable) -> Executable:
        return _ScriptedExecutable(scripted, program, is_timed=not self.simulated_times)


class SimulatedNativeBackend(ScriptedNativeBackend):
    """The same with virtual latencies, which are equal in every process."""

    name = "simulated-native"
    simulated_times = True


class ReferenceBackendWithDefault(ReferenceBackend):
    """A reference backend that has a schedule for programs for which nobody chooses one."""

    default_schedule = "reference schedule"


@frozen
class ReferenceProgram:
    """The reference backend's own kind of program: a workload and a script."""

    workload: Workload
    script: str = "{}"


class _ReferenceExecutable(Executable):
    def __init__(self, request: BuildRequest, script: Script) -> None:
        self._request = request
        self._script = script
        vanishing = script.ignored + script.optimised_away
        lie = _said(script, request.candidate, "digest")
        self.digest = lie.value if lie else _digest(request, script.seed, vanishing)

    def export(self, path: Path) -> None:
        path.write_text(json.dumps({"digest": self.digest, "script": self._request.program}))

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundCall:
        check_arguments(self._request.workload, inputs, outputs)
        _misbehave(self._script, self._request.candidate, "load")
        return _ReferenceCall(self._request, self._script, inputs, outputs)


class _ScriptedExecutable(Executable):
    """A compiled program beside its script."""

    def __init__(self, scripted: Executable, program: Executable, *, is_timed: bool) -> None:
        self._scripted = scripted
        self._program = program
        self._is_timed = is_timed
        self.digest = scripted.digest

    def export(self, path: Path) -> None:
        with TemporaryDirectory() as folder:
            script, program = (Path(folder, name) for name in ("script", "program"))
            self._scripted.export(script)
            self._program.export(program)
            path.write_bytes(script.read_bytes() + b"\n" + program.read_bytes())

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundCall:
        call = self._scripted.bind(inputs, outputs)
        assert isinstance(call, _ReferenceCall)
        call.program, call.is_timed = self._program.bind(inputs, outputs), self._is_timed
        return call


class _ReferenceCall(BoundCall):
    """A call of a scripted program.

    Attributes:
        program: What it is a call of; None where the loop nest is executed in numpy.
        is_timed: Whether that is timed where the script says no latencies.
    """

    program: BoundCall | None = None
    is_timed = False

    def __init__(
        self,
        request: BuildRequest,
        script: Script,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
    ) -> None:
        self._request = request
        self._script = script
        tensors = request.workload.inputs
        self._inputs = {tensor.name: a for tensor, a in zip(tensors, inputs, strict=True)}
        self._outputs = list(outputs)

    def run(self) -> None:
        wanted = self._misbehave("verify")
        if wanted == "nothing":
            return
        if self.program is not None:
            self.program.run()
        else:
            self._execute_nest()
        self._work_badly(wanted)

    def _execute_nest(self) -> None:
        candidate = self._request.candidate
        if candidate is None or is_default(candidate):
            results = reference_outputs(self._request.workload, self._inputs)
        else:
            results = run_candidate(candidate, self._inputs)
        for output, name in zip(self._outputs, self._request.workload.outputs, strict=True):
            output[...] = results[name]

    def time(self, number: int) -> float:
        script, candidate = self._script, self._request.candidate
        _log(script, "time", "begin", candidate)
        self._work_badly(self._misbehave("run"))
        _log(script, "time", "end", candidate)
        lie = _said(script, candidate, "time")
        if lie is not None:
            value: float = lie.value
            return value
        if self.program is not None and self.is_timed and not script.latencies:
            return self.program.time(number)
        latency = script.latency(self._request.workload, candidate)
        is_slow = int(time.monotonic() / script.drift_seconds) % 2
        return latency * script.drift_factor if is_slow else latency

    def _misbehave(self, phase: str) -> str | None:
        """Carry out or name the fault for this phase, and these inputs."""

        def is_for_these(fault: Fault) -> bool:
            if fault.inputs is None:
                return True
            drawn = random_inputs(self._request.workload, np.random.default_rng(fault.inputs))
            return all(np.array_equal(drawn[name], it) for name, it in self._inputs.items())

        return _misbehave(self._script, self._request.candidate, phase, is_for_these)

    def _work_badly(self, how: str | None) -> None:
        """Misbehave in a way that does not end the process at once."""
        output = self._outputs[0]
        if how == "wrong":
            output.flat[0] += 1
        elif how == "outside":
            ctypes.memset(output.ctypes.data + output.nbytes, 0, 1)
        elif how in ("dirty", "spoil"):
            next(iter(self._inputs.values())).flat[0] += 1
        if how == "spoil":
            raise RuntimeError("scripted: this input is spoilt")

    def outputs(self) -> list[Array]:
        return [output.copy() for output in self._outputs]

    def poison(self) -> None:
        for output in self._outputs:
            poison_array(output)


def _digest(request: BuildRequest, seed: int, vanishing: Sequence[str]) -> str:
    """Of the program without the parameters that make no difference to it."""
    parts: list[object] = [seed, request.workload.digest, request.threads]
    if request.candidate is not None:
        config = request.candidate.config.items()
        kept = sorted((name, value) for name, value in config if name not in vanishing)
        parts += [request.candidate.sketch.digest, kept]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _log(script: Script, name: str, event: str, candidate: Candidate | None = None) -> None:
    if script.log is not None:
        whom = "-" if candidate is None else candidate.digest
        line = f"{name} {event} {os.getpid()} {time.monotonic():.9f} {whom}\n"
        descriptor = os.open(script.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, line.encode())
        os.close(descriptor)


def _misbehave(
    script: Script,
    candidate: Candidate | None,
    phase: str,
    is_for_these: Callable[[Fault], bool] = lambda fault: fault.inputs is None,
) -> str | None:
    """Carry out the fault scripted for this candidate and phase.

    Returns its name when it is for the caller to carry out.
    """
    for fault in script.faults:
        if fault.phase == phase and fault.applies(candidate) and is_for_these(fault):
            if fault.fault in _NONSENSE:
                continue
            if fault.fault in _BAD_WORK:
                return fault.fault
            _CONDUCT[fault.fault]()
    return None


def _said(script: Script, candidate: Candidate | None, fault: str) -> Fault | None:
    """The fault of this name, which says what a candidate returns, if there is one for it."""
    its = (it for it in script.faults if it.fault == fault and it.applies(candidate))
    return next(its, None)


def _invalid() -> NoReturn:
    raise InvalidSchedule("scripted: step tile cannot be applied")


def _build_error() -> NoReturn:
    raise BuildFailed("scripted: the compiler rejects this")


def _exception() -> NoReturn:
    raise RuntimeError("scripted: an exception of no known kind")


_CONDUCT: Mapping[str, Callable[[], None]] = {
    "invalid": _invalid,
    "build_error": _build_error,
    "exception": _exception,
    **MISCONDUCT,
}

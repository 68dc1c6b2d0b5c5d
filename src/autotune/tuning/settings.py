"""What a user asks for, checked before anything is started or written."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.models.cost import ModelFile
from autotune.plugins.manager import manager
from autotune.plugins.parts import check_part, create_part
from autotune.targets import Target, resolve

__all__ = [
    "Settings",
    "checked_backends",
    "checked_target",
    "default_backend",
    "default_cost_model",
    "trained_model",
    "usable_cpus",
]

# The default where several are installed: the first of these.
_USUAL_BACKENDS = ("tvm", "mlir")
_USUAL_COST_MODEL = "gbdt"
NO_BACKEND = (
    "no backend is installed, so that nothing can be built; install one: "
    "pip install autotune-tvm or pip install autotune-mlir (autotune plugins shows what is "
    "installed and failed to load)"
)
DEFAULT_TRIALS = 64
DEFAULT_ROUND_SIZE = 16


@frozen
class Settings:
    """How to tune. Construct it through :meth:`checked`.

    Attributes:
        target: What to tune for, with ``cores`` equal to ``threads``.
        threads: Threads that the program runs on.
        backends: Names of the backends; several compete.
        space, strategy, cost_model, pruning_model, scheduler: Names of parts.
        trials: Budget in trials.
        seconds: Budget in wall seconds, or None.
        session_seconds: Wall seconds for this call, or None.
        seed: Seed of all randomness.
        round_size: Candidates that are asked for at once.
        lookahead: Rounds that are proposed before the outcomes of the one before are known.
        strategy_options: Options of the strategy.
        cost_model_options: Options of the cost model.
        pruning_model_options: Options of the pruning model.
        scheduler_options: Options of the task scheduler.
        fresh: Whether to ignore records and earlier runs.
        database: Path of the database.
        observers: Names of observers; they change nothing that is measured.
        cost_model_file: What the cost model has learned before, or None.
    """

    target: Target
    threads: int
    backends: tuple[str, ...]
    space: str
    strategy: str
    cost_model: str
    pruning_model: str | None
    scheduler: str
    trials: int
    seconds: float | None
    session_seconds: float | None
    seed: int
    round_size: int
    lookahead: int
    strategy_options: Mapping[str, Any] = field(hash=False)
    cost_model_options: Mapping[str, Any] = field(hash=False)
    pruning_model_options: Mapping[str, Any] = field(hash=False)
    scheduler_options: Mapping[str, Any] = field(hash=False)
    fresh: bool
    database: str
    observers: tuple[str, ...] = ()
    cost_model_file: ModelFile | None = None

    @staticmethod
    def checked(
        *,
        target: Target | str | os.PathLike[str] = "cpu",
        threads: int | None = None,
        backend: str | Sequence[str] | None = None,
        space: str = "sketch",
        strategy: str = "evolutionary",
        cost_model: str | None = None,
        pruning_model: str | None = "psa",
        scheduler: str = "gradient",
        trials: int = DEFAULT_TRIALS,
        seconds: float | None = None,
        session_time: float | None = None,
        seed: int = 0,
        round_size: int = DEFAULT_ROUND_SIZE,
        lookahead: int = 1,
        strategy_options: Mapping[str, Any] | None = None,
        cost_model_options: Mapping[str, Any] | None = None,
        pruning_model_options: Mapping[str, Any] | None = None,
        scheduler_options: Mapping[str, Any] | None = None,
        fresh: bool = False,
        database: str | os.PathLike[str] = "autotune.db",
        observers: Sequence[str] = (),
        load_cost_model: str | os.PathLike[str] | None = None,
    ) -> Settings:
        """Check every value.

        Raises:
            UnknownNameError: a part or target does not exist.
            InvalidValueError: a number is out of range, or a file cannot be read.
            UnsupportedTarget: the target cannot be detected.
        """
        _check_whole("trials", trials, 1)
        _check_whole("round_size", round_size, 1)
        _check_whole("seed", seed, 0)
        if lookahead not in (0, 1):
            raise InvalidValueError(f"lookahead must be 0 or 1 rounds, not {lookahead!r}")
        described = _check_cores(checked_target(target, threads))
        return Settings(
            target=described,
            threads=described.cores,
            backends=checked_backends(backend),
            space=check_part("search_space", space),
            strategy=check_part("strategy", strategy),
            cost_model=check_part("cost_model", cost_model or default_cost_model(strategy)),
            pruning_model=_optional_part("pruning_model", pruning_model),
            scheduler=check_part("task_scheduler", scheduler),
            trials=trials,
            seconds=_seconds("time", seconds),
            session_seconds=_seconds("session_time", session_time),
            seed=seed,
            round_size=round_size,
            lookahead=lookahead,
            strategy_options=dict(strategy_options or {}),
            cost_model_options=dict(cost_model_options or {}),
            pruning_model_options=_pruning_options(pruning_model, pruning_model_options),
            scheduler_options=dict(scheduler_options or {}),
            fresh=bool(fresh),
            database=os.fspath(database),
            observers=_observers(observers),
            cost_model_file=None if load_cost_model is None else trained_model(load_cost_model),
        )


def default_cost_model(strategy: str) -> str:
    """The cost model of a run with this strategy where none is named: its own, or ``gbdt``."""
    if ":" in strategy:
        return _USUAL_COST_MODEL
    return manager().get("strategy", strategy).default_cost_model or _USUAL_COST_MODEL


def trained_model(given: str | os.PathLike[str]) -> ModelFile:
    """What a cost model begins with.

    Args:
        given: Name of a trained model that a plugin brings, or the path of a file. A file in the
            current folder that is called like a trained model is meant by ``./`` before its name.

    Raises:
        UnknownNameError: it could be a name, but is none, and there is no such file.
        InvalidValueError: the file cannot be read.
    """
    names = manager().names("trained_model")
    if given in names:
        return ModelFile.at(create_part("trained_model", str(given)))
    # What has a suffix or a folder is meant to be a file.
    is_plain = isinstance(given, str) and given.replace("-", "").replace("_", "").isalnum()
    if is_plain and not os.path.exists(given):
        raise UnknownNameError("trained model", str(given), names, "There is no such file either.")
    return ModelFile.at(given)


def default_backend() -> str:
    """The backend that is used where none is named.

    The only one that is installed; of several, the first of ``tvm``, ``mlir`` and the others by
    name.

    Raises:
        InvalidValueError: none is installed.
    """
    installed = sorted(manager().names("backend"))
    usual = [name for name in _USUAL_BACKENDS if name in installed]
    if not installed:
        raise InvalidValueError(NO_BACKEND)
    return (*usual, *installed)[0]


def checked_backends(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names of backends, each of which exists.

    Args:
        given: A name, several separated by commas or in a list, or None for the default.

    Raises:
        UnknownNameError: there is no such backend.
        InvalidValueError: no name is given, one twice, or something that is no name.
    """
    if given is None:
        return (default_backend(),)
    names: list[object] = [given]
    if isinstance(given, str):
        names = [name.strip() for name in given.split(",")]
    elif isinstance(given, (list, tuple)):
        names = list(given)
    checked = [check_part("backend", name) for name in names]
    if not checked:
        raise InvalidValueError("there is no backend to tune with")
    for name in checked:
        if checked.count(name) > 1:
            raise InvalidValueError(f"backend {name!r} is named twice")
    return tuple(checked)


def _optional_part(kind: str, name: str | None) -> str | None:
    return None if name is None or _is_none(name) else check_part(kind, name)


def _pruning_options(name: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    given = dict(options or {})
    if given and _is_none(name):
        raise InvalidValueError(f"there is no pruning model to take the options {given}")
    if "target" in given:
        raise InvalidValueError("the target of the pruning model is that of the run, no option")
    return given


def _is_none(name: str | None) -> bool:
    return name is None or name == "none"


def _observers(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise InvalidValueError(f"observers must be a list of names, such as [{names!r}]")
    return tuple(dict.fromkeys(check_part("observer", name) for name in names))


def checked_target(target: Target | str | os.PathLike[str], threads: int | None) -> Target:
    """The target with as many cores as threads are to be used.

    Args:
        target: What ``autotune.targets.resolve`` takes.
        threads: Threads to run on; None for one per core of the target.

    Raises:
        InvalidValueError: ``threads`` is not a positive number of CPUs that this process has.
        UnknownNameError: there is no such target.
    """
    described = resolve(target)
    if threads is None:
        return described
    _check_whole("threads", threads, 1)
    if threads > usable_cpus():
        raise InvalidValueError(
            f"threads must be at most {usable_cpus()}, the CPUs that this process may use, "
            f"not {threads}"
        )
    return described if threads == described.cores else described.with_cores(threads)


def _check_cores(target: Target) -> Target:
    """Refuse to time programs on more threads than there are CPUs."""
    if target.kind == "cpu" and target.cores > usable_cpus():
        raise InvalidValueError(
            f"target {target.name!r} has {target.cores} cores, and this process may use "
            f"{usable_cpus()} CPUs: say how many threads are to be used of them (--threads)"
        )
    return target


def usable_cpus() -> int:
    """Logical CPUs that this process may run on."""
    return len(os.sched_getaffinity(0))


def _seconds(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise InvalidValueError(f"{name} must be a positive number of seconds, not {value!r}")
    return float(value)


def _check_whole(name: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InvalidValueError(f"{name} must be a whole number of at least {low}, not {value!r}")

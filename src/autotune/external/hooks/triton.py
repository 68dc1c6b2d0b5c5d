"""In Triton's autotuner: listen to what it times, and choose what it times.

Both are plain functions that Triton calls. Written for triton 3.8 and 3.9.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.external.ask_tell import DEFAULT_STRATEGY, AskTell, space_of
from autotune.external.hooks.packages import check_count, load
from autotune.ir.text_files import read_text_file
from autotune.spaces.parameters import Parameter, ParameterSpace, Value
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target

BACKEND = "triton"
PROTOCOL = "triton-do_bench"
SUFFIX = ".autotune.json"
UNSET = "None"
"""The value of a parameter that a configuration does not set, and others do."""
_LAUNCH = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override", "pre_hook")
"""Fields of a configuration beside the arguments of the kernel."""
_OPTIONAL = ("maxnreg", "ir_override", "pre_hook")
"""Fields that most configurations leave out, and that are no parameters then."""
_FAILURE = "Triton did not compile it, or it needs more than the device has"
_MILLISECOND = 1e-3
_QUANTILES = ("p50", "p20", "p80")
"""Quantiles that ``do_bench`` is asked for."""


@frozen
class KernelTimings:
    """Configurations of one kernel for one key, with the outcome of each.

    Attributes:
        kernel: Name of the function.
        key: What Triton tunes anew for: values of arguments, and types of tensors.
        configs: Value of each parameter by name, each configuration once.
        outcomes: Seconds, or that it failed; in the order of ``configs``.
    """

    kernel: str
    key: tuple[Value, ...]
    configs: tuple[Mapping[str, Value], ...] = field(hash=False)
    outcomes: tuple[Outcome, ...] = field(hash=False)

    @property
    def program(self) -> str:
        """Program that is tuned: the kernel and the key."""
        return f"{self.kernel}[{','.join(map(str, self.key))}]"

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, each with the values that occur."""
        return parameters_over(self.configs)

    def space(self) -> ParameterSpace:
        """The configurations as a space: exactly those that were timed."""
        return space_of(self.program, self.parameters, configs=self.configs)

    def records(
        self, target: Target, version: str, run_id: str, created: float, first_trial: int = 0
    ) -> list[Record]:
        """The timings as records, for a database or a file of JSON lines.

        Args:
            target: What they were timed on.
            version: Of Triton.
            run_id: Names the run that they are said to be of.
            created: When, in Unix seconds.
            first_trial: Number of the first of them in its run.
        """
        space = self.space()
        key = MeasureKey(target.fingerprint, BACKEND, version, version, 1, PROTOCOL)
        described = target.to_json()
        return [
            Record(
                run_id=run_id,
                trial=trial,
                candidate=space.encode(config),
                key=key,
                target=described,
                space=f"{space.name}-{space.version}",
                outcome=outcome,
                created=created,
            )
            for trial, (config, outcome) in enumerate(
                zip(self.configs, self.outcomes, strict=True), start=first_trial
            )
        ]


def timings_of(
    kernel: str, key: Sequence[Any], timed: Sequence[tuple[Mapping[str, Any], Any]]
) -> KernelTimings:
    """Timings from Triton's own form.

    Args:
        kernel: Name of the function.
        key: The key.
        timed: The attributes of each ``Config``, and what timing it gave: milliseconds, or their
            quantiles, the median first; infinite where it failed.

    Raises:
        InvalidValueError: it is no such form, or a configuration is there twice.
    """
    if not timed:
        raise InvalidValueError(f"timings of kernel {kernel!r} have no configuration")
    configs = flattened([config for config, _ in timed])
    outcomes = tuple(_outcome(kernel, times) for _, times in timed)
    seen: set[str] = set()
    for config in configs:
        if repr(config) in seen:
            raise InvalidValueError(
                f"timings of kernel {kernel!r} have a configuration twice: {config}"
            )
        seen.add(repr(config))
    return KernelTimings(kernel, tuple(map(plain, key)), configs, outcomes)


def flattened(configs: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Value], ...]:
    """Triton's configurations, given their attributes, all with the same parameters.

    Raises:
        InvalidValueError: the attributes are none of a configuration.
    """
    flat = [_flat(config) for config in configs]
    names = dict.fromkeys(name for config in flat for name in config)
    for name in _OPTIONAL:
        if all(config.get(name, UNSET) == UNSET for config in flat):
            names.pop(name, None)
    return tuple({name: config.get(name, UNSET) for name in names} for config in flat)


def parameters_over(configs: Sequence[Mapping[str, Value]]) -> tuple[Parameter, ...]:
    """The parameters of configurations, each with the values that occur."""
    found = []
    for name in configs[0]:
        values = {(type(it[name]).__name__, it[name]): it[name] for it in configs}
        ordered = sorted(values, key=lambda kind: (kind[0], kind[1]))
        found.append(Parameter(name, tuple(values[kind] for kind in ordered)))
    return tuple(found)


def _flat(config: Mapping[str, Any]) -> dict[str, Value]:
    arguments = config.get("kwargs")
    if not isinstance(arguments, Mapping):
        raise InvalidValueError(f"not a configuration of Triton: {str(dict(config))[:120]}")
    launch = {name: config[name] for name in _LAUNCH if name in config}
    return {name: plain(value) for name, value in {**arguments, **launch}.items()}


def read_timings(path: str | os.PathLike[str]) -> KernelTimings:
    """Read what Triton keeps with ``cache_results=True``: ``KERNEL.autotune.json``.

    Raises:
        InvalidValueError: it cannot be read, or is no such file; says why.
    """
    file = Path(path)
    if not file.name.endswith(SUFFIX):
        raise InvalidValueError(
            f"{str(file)!r} is no cache of Triton's autotuner, which is called KERNEL{SUFFIX}"
        )
    try:
        data = json.loads(read_text_file(file))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidValueError(f"{str(file)!r} cannot be read: {reason}") from None
    try:
        key, timed = data["key"], [(config, times) for config, times in data["configs_timings"]]
        if not isinstance(key, list) or not all(isinstance(it, dict) for it, _ in timed):
            raise TypeError("a key is a list, a configuration an object")
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidValueError(
            f"{str(file)!r} is no cache of Triton's autotuner: it needs 'key' and "
            f"'configs_timings' ({error})"
        ) from None
    return timings_of(file.name.removesuffix(SUFFIX), key, timed)


def _outcome(kernel: str, times: object) -> Outcome:
    """Outcome of timing a configuration."""
    numbers = times if isinstance(times, (list, tuple)) else [times]
    if not numbers or not all(_is_number(it) for it in numbers):
        raise InvalidValueError(f"timings of kernel {kernel!r} have {str(times)[:80]!r} as a time")
    seconds = [float(it) * _MILLISECOND for it in numbers if isinstance(it, (int, float))]
    if not all(map(math.isfinite, seconds)):
        return Outcome("build_error", message=_FAILURE)
    if min(seconds) <= 0:
        return Outcome("implausible", message=f"Triton says that it takes {numbers[0]} ms")
    named = zip(_QUANTILES, seconds, strict=False) if len(seconds) == len(_QUANTILES) else ()
    readings = {f"{BACKEND}.{name}": value for name, value in named}
    return Outcome("ok", seconds[0], (seconds[0],), readings=readings)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plain(value: Any) -> Value:
    """A value as a parameter has it; of anything but numbers, texts and truth values its text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    # A function is known by its name: its text has an address, which is another in each process.
    name = getattr(value, "__qualname__", None)
    return str(value) if name is None else f"{value.__module__}.{name}"


__all__ = [
    "KernelTimings",
    "RecordedModel",
    "listen",
    "prune_by_strategy",
    "prune_by_timings",
    "read_timings",
    "timings_of",
]

_NEIGHBOURS = 3
Config = Mapping[str, Value]


def listen(
    write: Callable[[Record], object], target: Target, run_id: str, clock: Callable[[], float]
) -> Callable[..., None]:
    """A listener for ``triton.knobs.autotuning.listener`` that records every timing.

    What Triton takes from its own cache is passed over: it was recorded when it was timed.

    Args:
        write: Takes each record, such as ``database.append_record``, or a function that writes
            :func:`autotune.store.jsonl.record_line` to a file.
        target: What Triton compiles for.
        run_id: Names the run that the records are of.
        clock: Unix seconds, such as ``time.time``.

    Raises:
        PackageMissing: Triton is not installed.
    """
    version = str(load("triton", "triton", "3.9.0").__version__)
    trials = 0

    def listener(
        *,
        fn: Any,
        key: Sequence[Any],
        configs_timings: Mapping[Any, Any],
        cache_hit: bool,
        **_: Any,
    ) -> None:
        nonlocal trials
        if cache_hit:
            return
        timed = [(vars(config), times) for config, times in configs_timings.items()]
        timings = timings_of(str(fn.__name__), key, timed)
        for record in timings.records(target, version, run_id, clock(), first_trial=trials):
            write(record)
        trials += len(timed)

    return listener


def prune_by_strategy(
    count: int,
    *,
    strategy: str = DEFAULT_STRATEGY,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    always: Sequence[Config] = (),
) -> dict[str, Any]:
    """``prune_configs_by`` of ``triton.autotune``: time only what a strategy proposes.

    Triton times all at once and tells nothing back, so that of a strategy only what it proposes
    first has a part in it: a sample that covers the list.

    Args:
        count: Configurations that are timed at most.
        strategy: Name of a strategy that needs no loop nest.
        options: Its options.
        seed: Of everything that is random.
        always: Configurations of the list that are among them, such as the one in use.

    Raises:
        InvalidValueError: ``count`` is not above 0; while tuning, one of ``always`` is not in the
            list.
    """
    check_count("count", count)

    def early_config_prune(configs: list[Any], named_args: Any, **_: Any) -> list[Any]:
        if len(configs) <= count:
            return configs
        flat = flattened([vars(config) for config in configs])
        # Lists that programs make may have a configuration twice, which Triton accepts.
        different = {repr(it): it for it in flat}
        originals = dict(zip(map(repr, flat), configs, strict=True))
        search = AskTell(
            parameters_over(flat),
            strategy=strategy,
            options=options,
            seed=seed,
            configs=tuple(different.values()),
        )
        search.seed(always)
        return [originals[repr(it.config)] for it in search.ask(count)]

    return {"early_config_prune": early_config_prune}


def prune_by_timings(
    timings: Sequence[KernelTimings],
    top_k: int,
    *,
    argument_names: Sequence[str] = (),
) -> dict[str, Any]:
    """``prune_configs_by`` of ``triton.autotune``: time only what was fast for other keys.

    Args:
        timings: Of the same kernel, as read by :func:`read_timings`.
        top_k: Configurations that are timed.
        argument_names: ``key`` of ``triton.autotune``; with them, the timings whose numbers are
            nearest count, and else all alike.

    Raises:
        InvalidValueError: there are no timings, of none anything was ok, ``top_k`` is not above
            0, or a key has fewer parts than there are names.
    """
    check_count("top_k", top_k)
    model = RecordedModel.of(timings, argument_names)
    return {"perf_model": model, "top_k": top_k}


@frozen(eq=False)
class RecordedModel:
    """A ``perf_model`` of ``triton.autotune``, from timings of the same kernel for other keys.

    A configuration that was timed is predicted by its time over that of the best configuration of
    its key; where several keys count, by the geometric mean. One that was not timed is predicted
    by the geometric mean of its three nearest neighbours that are ok, weighted by the inverse of
    the distance: the sum over parameters of the difference of logarithms (base 2, of numbers above
    0), or 1 where other values differ. One that failed for every key that counts is infinite.

    Attributes:
        timings: What was timed.
        argument_names: Names of the first parts of keys.
    """

    timings: tuple[KernelTimings, ...]
    argument_names: tuple[str, ...]

    @classmethod
    def of(
        cls, timings: Sequence[KernelTimings], argument_names: Sequence[str] = ()
    ) -> RecordedModel:
        """See :func:`prune_by_timings`."""
        found = tuple(it for it in timings if any(outcome.ok for outcome in it.outcomes))
        if not found:
            raise InvalidValueError("there are no timings to predict from")
        for it in found:
            if len(it.key) < len(argument_names):
                raise InvalidValueError(
                    f"key {list(it.key)} of kernel {it.kernel!r} has fewer parts than there are "
                    f"names: {', '.join(argument_names)}"
                )
        return cls(found, tuple(argument_names))

    def __call__(self, **arguments: Any) -> float:
        """The time of a configuration over that of the best one.

        Args:
            arguments: Those of the kernel and of the configuration, as Triton passes them.
        """
        predicted = [self._relative(it, arguments) for it in self._nearest(arguments)]
        finite = [it for it in predicted if math.isfinite(it)]
        if not finite:
            return math.inf
        return math.exp(math.fsum(map(math.log, finite)) / len(finite))

    def _nearest(self, arguments: Mapping[str, Any]) -> Sequence[KernelTimings]:
        """The timings that count."""
        if not self.argument_names:
            return self.timings
        wanted = [arguments.get(name) for name in self.argument_names]
        away = [
            math.fsum(_distance(a, b) for a, b in zip(it.key, wanted, strict=False))
            for it in self.timings
        ]
        return [it for it, far in zip(self.timings, away, strict=True) if far == min(away)]

    def _relative(self, timings: KernelTimings, arguments: Mapping[str, Any]) -> float:
        given = {it.name: plain(arguments.get(it.name, UNSET)) for it in timings.parameters}
        latencies = [outcome.latency for outcome in timings.outcomes]
        best = min(latency for latency in latencies if latency is not None)
        for config, latency in zip(timings.configs, latencies, strict=True):
            if config == given:
                return math.inf if latency is None else latency / best
        away = np.array(
            [
                math.fsum(_distance(value, given[name]) for name, value in config.items())
                for config in timings.configs
            ]
        )
        logs = np.array([math.inf if it is None else math.log(it / best) for it in latencies])
        return _interpolated(away[np.isfinite(logs)], logs[np.isfinite(logs)])


def _interpolated(away: NDArray[np.float64], logs: NDArray[np.float64]) -> float:
    nearest = np.argsort(away, kind="stable")[:_NEIGHBOURS]
    # Two values may be equal and of other types: never divide by zero.
    weights = 1.0 / np.maximum(away[nearest], 1e-9)
    return math.exp(float(np.average(logs[nearest], weights=weights)))


def _distance(left: object, right: object) -> float:
    if left == right:
        return 0.0
    numbers = [it for it in (left, right) if isinstance(it, (int, float)) and it > 0]
    if len(numbers) == 2 and not any(isinstance(it, bool) for it in numbers):
        return abs(math.log2(numbers[0]) - math.log2(numbers[1]))
    return 1.0

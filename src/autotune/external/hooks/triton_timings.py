"""Timings of Triton's autotuner: read from its cache, or heard while it tunes.

Written for triton 3.8 and 3.9. Nothing of Triton is imported here.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen

from autotune.errors import InvalidValueError
from autotune.ir.text_files import read_text_file
from autotune.spaces.parameters import (
    Parameter,
    ParameterSpace,
    Value,
    encode_config,
    recorded_space,
)
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target

__all__ = [
    "BACKEND",
    "UNSET",
    "KernelTimings",
    "flattened",
    "parameters_over",
    "plain",
    "read_timings",
    "timings_of",
]

BACKEND = "triton"
PROTOCOL = "triton-do_bench"
SUFFIX = ".autotune.json"
UNSET = "None"
"""The value of a parameter that a configuration does not set, and others do."""
_LAUNCH = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override", "pre_hook")
"""What a configuration has beside the arguments of the kernel."""
_OPTIONAL = ("maxnreg", "ir_override", "pre_hook")
"""What most configurations leave out, and is no parameter then."""
_FAILURE = "Triton did not compile it, or it needs more than the device has"
_MILLISECOND = 1e-3
_QUANTILES = ("p50", "p20", "p80")
"""Which quantiles ``do_bench`` is asked for."""


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
        rows = [encode_config(self.parameters, config) for config in self.configs]
        return recorded_space(self.program, self.parameters, np.array(rows, dtype=np.int64))

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

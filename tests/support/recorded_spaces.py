"""Small recorded spaces with a known optimum, and the files that hold them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotune.evaluation.replay import (
    Contestant,
    Evaluation,
    OutcomeTable,
    RecordedSpace,
    make_space,
    table_of,
)
from autotune.evaluation.replay.runs import Budget, Replay, Step
from autotune.search.strategies import Strategy
from autotune.sketches import Candidate
from autotune.spaces.parameters import Parameter

PARAMETERS = (
    Parameter("block", (1, 2, 4, 8, 16, 32)),
    Parameter("tile", (1, 2, 3, 4, 5)),
    Parameter("layout", ("row", "column")),
    Parameter("scale", (0.5, 1.0, 2.0)),
    Parameter("padded", (False, True)),
)


def small_space(name: str = "kernel-device", factor: float = 1.0) -> RecordedSpace:
    """360 configurations, of which those with blocks of more than 40 elements fail."""
    evaluations = []
    for values in itertools.product(*(parameter.values for parameter in PARAMETERS)):
        block, tile, layout, scale, padded = values
        config = dict(zip((it.name for it in PARAMETERS), values, strict=True))
        if block * tile > 40:
            evaluations.append(Evaluation(config, "crash", compiling=0.5, running=0.1))
            continue
        bowl = (np.log2(block) - 3) ** 2 + (tile - 3) ** 2 + abs(scale - 1.0)
        seconds = factor * 1e-3 * (1 + bowl + 2 * (layout == "row") + 0.25 * padded)
        samples = (seconds, 1.5 * seconds)
        evaluations.append(Evaluation(config, "ok", seconds, samples, 0.5, sum(samples), 0.0625))
    kernel, _, device = name.partition("-")
    return make_space(name, PARAMETERS, evaluations, kernel, device)


def small_table(name: str = "kernel-device") -> OutcomeTable:
    """The table of :func:`small_space`."""
    return table_of(small_space(name))


def cache_entry(block: int, tile: int, time: Any = 2.0, **others: Any) -> dict[str, Any]:
    """A configuration in a cache of Kernel Tuner."""
    entry = {
        "block": block,
        "tile": tile,
        "time": time,
        "times": [2.0, 3.0],
        "compile_time": 100.0,
        "verification_time": 10.0,
        "benchmark_time": 5.0,
        "strategy_time": 7.0,
        "framework_time": 1.0,
        "GFLOP/s": 12.5,
        "timestamp": "2023-12-22 09:53:48.691683+00:00",
    }
    return {**entry, **others}


def kernel_tuner_cache(*entries: dict[str, Any], **others: Any) -> dict[str, Any]:
    """A cache with these configurations; three of its own by default."""
    if not entries:
        failed = cache_entry(8, 1, "RuntimeFailedConfig")
        del failed["times"]
        entries = (cache_entry(4, 1), cache_entry(4, 2, 1.5), failed)
    return {
        "device_name": "Some GPU",
        "kernel_name": "convolution",
        "problem_size": [64, 64],
        "tune_params_keys": ["block", "tile"],
        "tune_params": {"block": [4, 8], "tile": [1, 2]},
        "objective": "time",
        "cache": {f"{it['block']},{it['tile']}": it for it in entries},
        **others,
    }


def t4_result(block: int, tile: int, value: Any = 2.0, **others: Any) -> dict[str, Any]:
    """A configuration in a T4 file, as files of the hub have it."""
    result = {
        "timestamp": "2023-12-22 09:53:48.691683+00:00",
        "configuration": {"block": block, "tile": tile},
        "times": {
            "compilation": 100.0,
            "framework": 1.0,
            "search_algorithm": 7.0,
            "validation": 10.0,
            "runtimes": [2.0, 3.0],
        },
        "invalidity": "correct",
        "correctness": 1,
        "measurements": [
            {"name": "GFLOP/s", "value": 12.5, "unit": ""},
            {"name": "time", "value": value, "unit": ""},
        ],
        "objectives": ["time"],
    }
    return {**result, **others}


def t4_data(*results: dict[str, Any], **others: Any) -> dict[str, Any]:
    """A T4 file with these configurations; three of its own by default."""
    if not results:
        failed = t4_result(8, 1, "RuntimeFailedConfig", invalidity="runtime", correctness=0)
        results = (t4_result(4, 1), t4_result(4, 2, 1.5), failed)
    return {
        "metadata": {"timeunit": "miliseconds"},
        "results": list(results),
        "schema_version": "1.0.0",
        **others,
    }


def t1_data(*conditions: str) -> dict[str, Any]:
    """A T1 file over the parameters of the other files."""
    values = {"block": "[4, 8]", "tile": "[1, 2]"}
    return {
        "General": {"BenchmarkName": "convolution", "OutputFormat": "JSON"},
        "ConfigurationSpace": {
            "TuningParameters": [
                {"Name": name, "Type": "int", "Values": text, "Default": 16}
                for name, text in values.items()
            ],
            "Conditions": [{"Expression": text, "Parameters": ["block"]} for text in conditions],
        },
        "KernelSpecification": {"Language": "CUDA", "KernelName": "convolution"},
    }


def made_run(steps: Sequence[tuple[int, float]], evaluations: int = 200, seed: int = 0) -> Replay:
    """A run with improvements at these evaluations, for scoring alone."""
    made = tuple(Step(number, float(number), seconds) for number, seconds in steps)
    budget = Budget(evaluations)
    return Replay("s", "d", "x", seed, budget, made, evaluations, 0, 1.0, 0.0, 0.0, "budget")


def permuted_run(table: OutcomeTable, seed: int, evaluations: int) -> Replay:
    """Random search without replacement, exactly."""
    order = np.random.default_rng(seed).permutation(len(table))[:evaluations]
    steps: list[tuple[int, float]] = []
    for number, seconds in enumerate(table.seconds[order].tolist(), 1):
        if np.isfinite(seconds) and (not steps or seconds < steps[-1][1]):
            steps.append((number, seconds))
    return made_run(steps, evaluations, seed)


class FirstOnes(Strategy):
    """Asks for the candidates of a space in their order, in rounds; keeps what it is told."""

    name = "first-ones"

    def __init__(self, context: Any) -> None:
        self.rest = iter(context.space.enumerate())
        self.told: list[tuple[Candidate, Any]] = []

    def ask(self, n: int) -> list[Candidate]:
        return list(itertools.islice(self.rest, n))

    def tell(self, outcomes: Any) -> None:
        self.told += outcomes

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        raise AssertionError


class Failing(FirstOnes):
    """Fails at its second round."""

    def ask(self, n: int) -> list[Candidate]:
        if self.told:
            raise RuntimeError("on purpose")
        return super().ask(n)


FIRST_ONES = Contestant("recorded_spaces:FirstOnes")

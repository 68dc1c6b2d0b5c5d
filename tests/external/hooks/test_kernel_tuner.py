"""Our strategies drive Kernel Tuner's own loop, over its simulation of recorded times."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.external.hooks.kernel_tuner import KernelTunerStrategy
from autotune.external.hooks.packages import PackageMissing, load
from autotune.search.strategies import RandomStrategy
from autotune.sketches import Candidate
from autotune.store.records import Outcome

TUNE_PARAMS: dict[str, list[Any]] = {
    "block_size_x": [16, 32, 64, 128, 256],
    "tile": [1, 2, 4, 8],
    "layout": ["row", "column"],
}
RESTRICTIONS = ["block_size_x * tile <= 512"]
SIZE = 4096


def time_of(block: int, tile: int, layout: str) -> float:
    """Milliseconds of a kernel."""
    return 1.0 + abs(math.log2(block) - 6) + abs(tile - 4) + (layout == "column")


def fails(block: int, tile: int) -> bool:
    return block == 16 and tile == 8


needs_package = pytest.mark.needs("kernel_tuner")


@pytest.fixture
def kernel_tuner() -> Any:
    import kernel_tuner

    return kernel_tuner


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache as Kernel Tuner writes it, of the whole space."""
    found = {}
    for row in itertools.product(*TUNE_PARAMS.values()):
        block, tile, layout = row
        if block * tile <= 512:
            entry: dict[str, Any] = dict(zip(TUNE_PARAMS, row, strict=True))
            milliseconds = time_of(block, tile, layout)
            if fails(block, tile):
                entry |= {"time": "RuntimeFailedConfig", "__error__": "RuntimeFailedConfig"}
            else:
                entry |= {"time": milliseconds, "times": [milliseconds] * 3}
                entry["GFLOP/s"] = 100 / milliseconds
            entry |= {"compile_time": 5.0, "verification_time": 0.0, "benchmark_time": 1.0}
            found[",".join(map(str, row))] = entry
    path = tmp_path / "cache.json"
    header = {
        "device_name": "a device",
        "kernel_name": "copy",
        "problem_size": SIZE,
        "tune_params_keys": list(TUNE_PARAMS),
        "tune_params": TUNE_PARAMS,
        "objective": "time",
        "cache": found,
    }
    path.write_text(json.dumps(header, indent=""))
    return path


def tune(
    kernel_tuner: Any, cache: Path, strategy: KernelTunerStrategy, fevals: int = 20, **more: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    options = {"max_fevals": fevals, **more.pop("strategy_options", {})}
    found: tuple[list[dict[str, Any]], dict[str, Any]] = kernel_tuner.tune_kernel(
        "copy",
        "__global__ void copy(float *a) {}",
        SIZE,
        [np.zeros(SIZE, dtype=np.float32)],
        TUNE_PARAMS,
        restrictions=RESTRICTIONS,
        lang="CUDA",
        cache=str(cache),
        simulation_mode=True,
        strategy=strategy,
        strategy_options=options,
        quiet=True,
        **more,
    )
    return found


def configs(results: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(it[name] for name in TUNE_PARAMS) for it in results]


@needs_package
@pytest.mark.parametrize("name", ["random", "evolutionary", "grid"])
def test_it_evaluates_as_many_as_allowed(kernel_tuner: Any, cache: Path, name: str) -> None:
    results, env = tune(kernel_tuner, cache, KernelTunerStrategy(name, seed=1), fevals=12)
    found = configs(results)
    assert len(found) == len(set(found)) == 12
    assert all(block * tile <= 512 for block, tile, _ in found)
    times = [it["time"] for it in results if "__error__" not in it]
    assert env["best_config"]["time"] == min(times)


@needs_package
def test_it_ends_with_the_space(kernel_tuner: Any, cache: Path) -> None:
    results, env = tune(kernel_tuner, cache, KernelTunerStrategy("random", batch=7), fevals=999)
    assert len(set(configs(results))) == len(json.loads(cache.read_text())["cache"])
    best = env["best_config"]
    assert best["time"] == 1.0 and (best["block_size_x"], best["tile"]) == (64, 4)


@needs_package
def test_one_seed_gives_the_same_evaluations(kernel_tuner: Any, cache: Path) -> None:
    first, again, other = (
        configs(tune(kernel_tuner, cache, KernelTunerStrategy("evolutionary", seed=seed))[0])
        for seed in (1, 1, 2)
    )
    assert first == again != other


class Listening(RandomStrategy):
    """Notes what it is told."""

    heard: list[tuple[tuple[int, ...], float | None]] = []

    def tell(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        self.heard.extend((it.values, outcome.latency) for it, outcome in outcomes)
        super().tell(outcomes)


@needs_package
def test_the_strategy_is_told_what_was_timed(kernel_tuner: Any, cache: Path) -> None:
    strategy = KernelTunerStrategy(f"{__name__}:Listening")
    told = {}
    for objective, higher in (("time", False), ("GFLOP/s", True)):
        Listening.heard.clear()
        results, _ = tune(
            kernel_tuner,
            cache,
            strategy,
            fevals=34,
            objective=objective,
            objective_higher_is_better=higher,
        )
        told[objective] = dict(Listening.heard)
        layouts = TUNE_PARAMS["layout"]
        for block, tile, layout in configs(results[:-1]):
            latency = told[objective][block, tile, layouts.index(layout)]
            time = time_of(block, tile, layout)
            wanted = None if fails(block, tile) else time / 100 if higher else time
            assert latency == pytest.approx(wanted)
    order = [
        sorted(timed, key=lambda values: (timed[values] or 0.0, values)) for timed in told.values()
    ]
    assert order[0] == order[1]


@needs_package
def test_it_starts_where_it_is_told_to(kernel_tuner: Any, cache: Path) -> None:
    start = [128, 2, "column"]
    results, _ = tune(
        kernel_tuner, cache, KernelTunerStrategy("random"), strategy_options={"x0": start}
    )
    assert configs(results)[0] == tuple(start)


@needs_package
def test_mistakes(kernel_tuner: Any, cache: Path) -> None:
    def run(name: str = "random", **more: Any) -> None:
        tune(kernel_tuner, cache, KernelTunerStrategy(name), **more)

    with pytest.raises(InvalidValueError, match="Unrecognized option popsize"):
        run(strategy_options={"popsize": 3})
    with pytest.raises(InvalidValueError, match="one objective is searched for, not 2"):
        run(objectives={"time": False, "GFLOP/s": True})
    with pytest.raises(UnknownNameError, match="randon"):
        run("randon")
    data = json.loads(cache.read_text())
    for entry in data["cache"].values():
        entry["time"] = 0.0
        entry.pop("__error__", None)
    cache.write_text(json.dumps(data, indent=""))
    with pytest.raises(InvalidValueError, match="'time' is 0.0; only positive"):
        run()


def test_a_batch_has_at_least_one() -> None:
    with pytest.raises(InvalidValueError, match="batch is a whole number above 0"):
        KernelTunerStrategy("random", batch=0)


def test_a_missing_package_is_said_in_one_line() -> None:
    with pytest.raises(PackageMissing, match=r"pip install no-such-tuner==1\.0"):
        load("no_such_tuner.strategies", "no-such-tuner", "1.0")

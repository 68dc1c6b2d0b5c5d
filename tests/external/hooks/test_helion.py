"""A strategy drives Helion's own search loop, over its own configuration space.

Helion times on GPUs only: here its provider of benchmarks is replaced, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from autotune.errors import InvalidValueError
from autotune.external.hooks.helion import autotuner, slots_of

needs_helion = pytest.mark.needs("helion", "torch")


@pytest.fixture(scope="module")
def helion() -> Any:
    import helion

    return helion


def milliseconds(config: Any) -> float:
    """Duration of a configuration; one of the modes does not compile."""
    if config["mode"] == "b":
        return math.inf
    return float(1 + abs(config["block"] - 32) + config["k"] + 10 * config["flags"][1])


class Provider:
    """In place of Helion's: no kernel is compiled."""

    timed: list[Any] = []

    def __init__(self, **_: Any) -> None:
        self.timed.clear()

    def set_budget_exceeded_fn(self, _: Any) -> None: ...

    def setup(self) -> None: ...

    def cleanup(self) -> None: ...

    def benchmark(self, configs: Sequence[Any], **_: Any) -> list[Any]:
        from helion.autotuner.benchmark_provider import BenchmarkResult

        self.timed.extend(configs)
        return [
            BenchmarkResult(
                config=config,
                fn=lambda *_: None,
                perf=milliseconds(config),
                status="ok" if math.isfinite(milliseconds(config)) else "error",
                compile_time=0.1,
            )
            for config in configs
        ]


@pytest.fixture
def kernel(helion: Any) -> Any:
    import torch
    from helion.autotuner import config_fragment as kinds
    from helion.autotuner.external import _ExternalKernelAdapter, create_user_config_spec

    spec = create_user_config_spec(
        {
            "block": kinds.PowerOfTwoFragment(16, 256, 64),
            "order": kinds.PermutationFragment(3),
            "mode": kinds.EnumFragment(("a", "b", None)),
            "flags": kinds.ListOf(kinds.BooleanFragment(), 2),
            "k": kinds.IntegerFragment(1, 5, 2),
        }
    )
    return _ExternalKernelAdapter(
        spec, lambda _: lambda *_: None, (), device=torch.device("cpu"), autotune_log_level=0
    )


def tuned(kernel: Any, **options: Any) -> tuple[Any, list[Any]]:
    make = autotuner(**{"strategy": "random", **options})
    found = make(kernel, (), benchmark_provider_cls=Provider).autotune()
    return found, list(Provider.timed)


@needs_helion
def test_it_times_as_many_as_allowed_and_each_once(kernel: Any) -> None:
    best, timed = tuned(kernel, trials=40, batch=7)
    assert len(timed) == len(set(timed)) == 40
    assert timed[0] == kernel.config_spec.default_config()
    assert milliseconds(best) == min(map(milliseconds, timed))


@needs_helion
def test_one_seed_times_the_same(kernel: Any) -> None:
    assert tuned(kernel, seed=1, trials=20)[1] == tuned(kernel, seed=1, trials=20)[1]
    assert tuned(kernel, seed=1, trials=20)[1] != tuned(kernel, seed=2, trials=20)[1]


@needs_helion
def test_the_whole_space(kernel: Any) -> None:
    best, timed = tuned(kernel, strategy="grid", trials=10_000, batch=500)
    assert len(timed) == 5 * math.factorial(3) * 3 * 4 * 5
    assert best["block"] == 32 and best["k"] == 1 and best["flags"][1] is False


@needs_helion
def test_where_nothing_works_helion_says_so(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from helion import exc

    monkeypatch.setitem(globals(), "milliseconds", lambda _: math.inf)
    with pytest.raises(exc.NoConfigFound):
        tuned(kernel, trials=5)


@needs_helion
def test_the_space_of_a_kernel(helion: Any) -> None:
    """Of one that Helion itself has read: every configuration is found again by its parameters."""
    import torch
    from kernel_of_helion import add

    from autotune.external.hooks.helion import HelionLoop

    bound = add.bind((torch.zeros(64, 48), torch.zeros(64, 48)))
    generation = bound.config_spec.create_config_generation()
    run = HelionLoop(generation, slots_of(generation.flat_spec), lambda _: [])
    flats = [generation.default_flat(), *(generation.random_flat() for _ in range(20))]
    for flat in flats:
        assert run.flat(run.config(flat)) == flat
    for config in {str(generation.unflatten(run.flat(run.config(flat)))) for flat in flats}:
        assert "block_sizes" in config


@needs_helion
def test_what_cannot_be_listed_is_refused(helion: Any) -> None:
    from helion.autotuner import config_fragment as kinds

    for fragment in (kinds.PermutationFragment(12), kinds.IntegerFragment(0, 1 << 40, 1)):
        with pytest.raises(InvalidValueError, match="more values than are searched"):
            slots_of([fragment])


@pytest.mark.parametrize("name", ["trials", "batch"])
def test_mistakes(name: str) -> None:
    with pytest.raises(InvalidValueError, match=f"{name} is a whole number above 0"):
        autotuner("random", **{name: 0})

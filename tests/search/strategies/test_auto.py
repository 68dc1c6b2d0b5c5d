from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from autotune.search.strategies import (
    AnnealingStrategy,
    AutoStrategy,
    RandomStrategy,
    Strategy,
    StrategyContext,
    sampling,
)
from autotune.sketches import Candidate
from autotune.spaces.parameters import Parameter, ParameterSpace, parameter_space
from autotune.store.records import Outcome

BLOCKS = tuple(range(16, 272, 16))


def _space(blocks: Sequence[int] = BLOCKS) -> ParameterSpace:
    return parameter_space(
        "synthetic kernel",
        [
            Parameter("bx", tuple(blocks)),
            Parameter("by", (1, 2, 4, 8, 16)),
            Parameter("tx", (1, 2, 4, 8)),
            Parameter("ty", (1, 2, 4, 8)),
            Parameter("layout", ("row", "column", "tiled")),
            Parameter("pad", (False, True)),
        ],
        ["bx * by <= 1024", "pad == 0 or bx % 32 != 0"],
    )


def _seconds(config: dict[str, object]) -> float | None:
    """Best at bx 64, by 4, tx 4, ty 2, tiled: 1 ms. Large tiles fail: a quarter of the space."""
    bx, by, tx, ty = (float(str(config[name])) for name in ("bx", "by", "tx", "ty"))
    if tx * ty * by > 64:
        return None
    slower = 0.5 * np.log2(bx / 64) ** 2 + 0.4 * np.log2(by / 4) ** 2
    slower += 0.3 * np.log2(tx / 4) ** 2 + 0.5 * np.log2(ty / 2) ** 2
    slower += 0.2 * abs(np.log2(bx * by / 256)) + 0.4 * (bx % 32 != 0)
    slower += {"row": 0.3, "column": 1.0, "tiled": 0.0}[str(config["layout"])]
    return float(1e-3 * np.exp(slower))


def _told(space: ParameterSpace, asked: Sequence[Candidate]) -> list[tuple[Candidate, Outcome]]:
    outcomes = []
    for candidate in asked:
        seconds = _seconds(space.decode(candidate))
        outcome = Outcome("crash") if seconds is None else Outcome("ok", seconds, (seconds,))
        outcomes.append((candidate, outcome))
    return outcomes


def _make(cls: type[Strategy], space: ParameterSpace, seed: int) -> Strategy:
    return cls(StrategyContext(space, np.random.default_rng(seed)))  # type: ignore[call-arg]


def _play(
    strategy: Strategy, space: ParameterSpace, budget: int, size: int = 1
) -> list[tuple[str, float | None]]:
    played: list[tuple[str, float | None]] = []
    while len(played) < budget:
        outcomes = _told(space, strategy.ask(min(size, budget - len(played))))
        if not outcomes:
            break
        strategy.tell(outcomes)
        played += [(candidate.digest, outcome.latency) for candidate, outcome in outcomes]
    return played


@cache
def _regret(cls: type[Strategy], budget: int, size: int = 1, seeds: int = 5) -> float:
    """Mean of the logarithm of the best latency over the least one."""
    space = _space()
    logs = []
    for seed in range(seeds):
        played = _play(_make(cls, space, seed), space, budget, size)
        logs.append(np.log(min(it for _, it in played if it is not None) / 1e-3))
    return float(np.mean(logs))


def test_it_beats_random_search_by_far() -> None:
    assert _regret(AutoStrategy, 40) < 0.25 * _regret(RandomStrategy, 40)
    assert _regret(AutoStrategy, 40) < 0.3 * _regret(RandomStrategy, 80)


def test_batches_cost_little() -> None:
    assert _regret(AutoStrategy, 48, size=8) < 0.35 * _regret(RandomStrategy, 48)


def test_annealing_beats_random_search() -> None:
    assert _regret(AnnealingStrategy, 80, seeds=8) < 0.6 * _regret(RandomStrategy, 80, seeds=8)


def test_a_space_beyond_enumeration_is_searched_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = _regret(RandomStrategy, 40)
    monkeypatch.setattr(sampling, "ENUMERATION_LIMIT", 100)
    assert _regret(AutoStrategy, 40, seeds=3) < 0.4 * sampled


@pytest.mark.parametrize("size", [1, 5])
def test_it_continues_from_its_state_after_failures(size: int) -> None:
    space = _space()
    strategy = _make(AutoStrategy, space, 0)
    played = _play(strategy, space, 33, size)
    assert any(latency is None for _, latency in played)
    other = _make(AutoStrategy, space, 9)
    other.load_state(json.loads(json.dumps(strategy.state())))
    assert _play(other, space, 25, size) == _play(strategy, space, 25, size)


def test_a_space_of_few_is_used_up() -> None:
    space = _space(blocks=(32,))
    played = _play(_make(AutoStrategy, space, 0), space, 10**6, 16)
    assert len({digest for digest, _ in played}) == len(played) == space.count()

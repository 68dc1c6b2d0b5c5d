"""Recorded spaces of one kernel on several devices: what do the others say of the next one?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune import AskTell
from autotune.evaluation.replay import RecordedSpace
from autotune.evaluation.replay.formats import read_spaces
from autotune.search.priors import ranked_seeds
from support.bars import Bar

__all__ = ["SEARCHES", "replay_recorded"]

SEEDS, GOAL, MOST_SEEDS, MOST_EVALUATIONS = 20, 1.10, 20, 400
Search = Callable[[RecordedSpace, Sequence[int], int, float], int]


def by_strategy(space: RecordedSpace, seeds: Sequence[int], seed: int, goal: float) -> int:
    """Evaluations of the default strategy until ``goal``, after the configurations ``seeds``."""
    configs = [dict(it.configuration) for it in space.evaluations]
    places = {tuple(config.values()): at for at, config in enumerate(configs)}
    search = AskTell(space.parameters, seed=seed, configs=configs)
    search.seed([configs[at] for at in seeds])
    for count in range(1, MOST_EVALUATIONS + 1):
        (proposal,) = search.ask()
        found = space.evaluations[places[tuple(proposal.config[it] for it in configs[0])]].seconds
        if found is None:
            search.tell(proposal, failed="as recorded")
        else:
            search.tell(proposal, seconds=found)
            if found <= goal:
                return count
    return MOST_EVALUATIONS


def at_random(space: RecordedSpace, seeds: Sequence[int], seed: int, goal: float) -> int:
    """Evaluations until ``goal``: the configurations ``seeds``, then all others at random."""
    rest = np.random.default_rng(seed).permutation(len(space)).tolist()
    order = list(dict.fromkeys([*seeds, *rest]))
    return 1 + int(np.argmax(space.seconds[order] <= goal))


SEARCHES: Mapping[str, Search] = {"random": at_random, "auto": by_strategy}


def replay_recorded(folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """Print and return evaluations to 1.10 of the optimum, warm and cold, on every device."""
    paths = sorted(it for it in folder.glob("*.json.gz") if not it.name.endswith(".t4.json.gz"))
    kernels: dict[tuple[str, str], list[RecordedSpace]] = {}
    for space in read_spaces([str(path) for path in paths]):
        kernels.setdefault((space.kernel, space.problem), []).append(space)
    ratios: dict[str, list[NDArray[np.float64]]] = {name: [] for name in SEARCHES}
    rows = []
    for spaces in kernels.values():
        for space in spaces if len(spaces) > 1 else ():
            seeds = seeds_for(space, [other for other in spaces if other is not space])
            for name, search in SEARCHES.items():
                warm = evaluations(search, space, seeds, 0)
                cold = evaluations(search, space, [], SEEDS)
                ratios[name].append(warm / cold)
                rows.append(
                    {
                        "space": space.name,
                        "search": name,
                        "warm": warm.tolist(),
                        "cold": cold.tolist(),
                    }
                )
                print(
                    f"{space.name:32} {name:7} evaluations to {GOAL:.2f}: median "
                    f"{np.median(warm):6.1f} warm, {np.median(cold):6.1f} cold"
                )
    bars = [bar for name, found in ratios.items() if found for bar in _bars(name, found)]
    return {"rows": rows}, bars


def seeds_for(space: RecordedSpace, others: Sequence[RecordedSpace]) -> list[int]:
    """Positions of the configurations to begin with, by what they took on other devices."""
    known = [tuple(it.configuration.values()) for it in space.evaluations]
    times = np.full((len(others), len(known)), np.nan)
    for row, other in enumerate(others):
        found = {
            tuple(it.configuration.values()): seconds
            for it, seconds in zip(other.evaluations, other.seconds.tolist(), strict=True)
        }
        times[row] = [found.get(values, np.nan) for values in known]
    return ranked_seeds(space.positions, times, MOST_SEEDS).tolist()


def evaluations(
    search: Search, space: RecordedSpace, seeds: Sequence[int], first: int
) -> NDArray[np.float64]:
    """Evaluations until 1.10 of the optimum, of runs with the seeds ``first`` and on."""
    goal = GOAL * space.best
    counts = [search(space, seeds, seed, goal) for seed in range(first, first + SEEDS)]
    return np.array(counts, dtype=np.float64)


def _bars(name: str, ratios: Sequence[NDArray[np.float64]]) -> list[Bar]:
    """The median ratio over spaces and runs, and the upper end of its 95 % interval."""
    table, rng = np.array(ratios), np.random.default_rng(0)
    spaces = rng.integers(len(table), size=(2000, len(table)))
    runs = rng.integers(SEEDS, size=(2000, SEEDS))
    medians = [np.median(table[own][:, it]) for own, it in zip(spaces, runs, strict=True)]
    low, high = np.quantile(medians, [0.025, 0.975])
    middle = float(np.median(table))
    print(f"{name}: warm / cold {middle:.3f} [{low:.3f}, {high:.3f}]")
    what = f"evaluations to {GOAL:.2f}, warm / cold, {name}"
    return [
        Bar(f"{what}: median", middle, 0.5, at_most=True),
        Bar(f"{what}: upper end of the interval", float(high), 1.0, at_most=True),
    ]

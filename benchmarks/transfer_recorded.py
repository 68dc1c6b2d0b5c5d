"""Recorded spaces of one kernel on several devices: what do the others say of the next one?"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bars import Bar
from numpy.typing import NDArray

from autotune.search.priors import ranked_seeds

__all__ = ["local_search", "random_search", "read_cache", "replay_recorded"]

SEEDS, GOAL, MOST = 20, 1.10, 20
Search = Callable[[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], Any, float], int]


def read_cache(path: Path) -> dict[tuple[Any, ...], float]:
    """Times of a Kernel Tuner cache by values of the parameters; infinity for a failure."""
    text = gzip.decompress(path.read_bytes()).decode()
    try:
        data = json.loads(text)
    except ValueError:
        # One that was not closed lacks its last two braces.
        data = json.loads(text.rstrip().rstrip(",") + "}}")
    names = data["tune_params_keys"]
    return {
        tuple(entry[name] for name in names): _time(entry.get("time"))
        for entry in data["cache"].values()
    }


def _time(value: object) -> float:
    is_time = isinstance(value, (int, float)) and 0 < value < 1e19
    return float(value) if is_time else np.inf  # type: ignore[arg-type]


class _Run:
    """Evaluations of one run, each configuration once."""

    def __init__(self, times: NDArray[np.float64], goal: float) -> None:
        self.times, self.goal = times, goal
        self.seen: set[int] = set()
        self.best = -1

    def evaluate(self, position: int) -> bool:
        """Whether the goal is reached."""
        self.seen.add(position)
        if self.best < 0 or self.times[position] < self.times[self.best]:
            self.best = position
        return bool(self.times[self.best] <= self.goal)


def random_search(
    times: NDArray[np.float64],
    configurations: NDArray[np.int64],
    seeds: NDArray[np.int64],
    rng: np.random.Generator,
    goal: float,
) -> int:
    """Evaluations until ``goal``: the seeds, then all others at random."""
    run = _Run(times, goal)
    for position in [*seeds.tolist(), *rng.permutation(len(times)).tolist()]:
        if position not in run.seen and run.evaluate(position):
            break
    return len(run.seen)


def local_search(
    times: NDArray[np.float64],
    configurations: NDArray[np.int64],
    seeds: NDArray[np.int64],
    rng: np.random.Generator,
    goal: float,
) -> int:
    """The same with first improvements in one parameter, from the best seed and at random."""
    run = _Run(times, goal)
    if any(run.evaluate(position) for position in seeds.tolist()):
        return len(run.seen)
    starts = [run.best] if run.best >= 0 else []
    for start in [*starts, *rng.permutation(len(times)).tolist()]:
        if start not in run.seen and run.evaluate(start):
            break
        if _climb(run, configurations, start, rng):
            break
    return len(run.seen)


def _climb(
    run: _Run, configurations: NDArray[np.int64], current: int, rng: np.random.Generator
) -> bool:
    """Go on to better neighbours while there are any; whether the goal is reached."""
    moved = True
    while moved:
        moved = False
        near = np.flatnonzero((configurations != configurations[current]).sum(axis=1) == 1)
        for position in rng.permutation(near).tolist():
            if position in run.seen:
                continue
            if run.evaluate(position):
                return True
            if run.times[position] < run.times[current]:
                current, moved = position, True
                break
    return False


def replay_recorded(folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """Print and return evaluations to 1.10 of the optimum, warm and cold, on every device."""
    kernels: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*-*.json.gz")):
        if not path.name.endswith(".t4.json.gz"):
            kernels.setdefault(path.name.split("-")[0], []).append(path)
    ratios: dict[str, list[NDArray[np.float64]]] = {"random": [], "local": []}
    rows = []
    for paths in kernels.values():
        if len(paths) < 2:
            continue
        caches = [read_cache(path) for path in paths]
        known = list(dict.fromkeys(values for cache in caches for values in cache))
        coded = _coded(known)
        times = np.array([[cache.get(values, np.nan) for values in known] for cache in caches])
        for number, path in enumerate(paths):
            there = ~np.isnan(times[number])
            own, configurations = times[number][there], coded[there]
            others = np.delete(times, number, axis=0)[:, there]
            seeds = ranked_seeds(configurations, others, MOST)
            for name, search in (("random", random_search), ("local", local_search)):
                warm, cold = _evaluations(search, own, configurations, seeds)
                ratios[name].append(warm / cold)
                title = path.name.removesuffix(".json.gz")
                rows.append({"space": title, "search": name, "warm": warm, "cold": cold})
                print(
                    f"{title:32} {name:7} evaluations to {GOAL:.2f}: median "
                    f"{np.median(warm):6.1f} warm, {np.median(cold):6.1f} cold"
                )
    bars = [bar for name, found in ratios.items() if found for bar in _bars(name, found)]
    written = [
        {**row, **{name: row[name].tolist() for name in ("warm", "cold")}}  # type: ignore[union-attr]
        for row in rows
    ]
    return {"rows": written}, bars


def _coded(known: Sequence[tuple[Any, ...]]) -> NDArray[np.int64]:
    """Values of every parameter as numbers."""
    columns = []
    for column in zip(*known, strict=True):
        codes = {value: number for number, value in enumerate(dict.fromkeys(column))}
        columns.append([codes[value] for value in column])
    return np.array(columns, dtype=np.int64).T


def _evaluations(
    search: Search,
    times: NDArray[np.float64],
    configurations: NDArray[np.int64],
    seeds: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of so many runs with the seeds, and of others without any; each has its own randomness."""
    goal, none = GOAL * float(times.min()), seeds[:0]

    def counts(given: NDArray[np.int64], stream: int) -> NDArray[np.float64]:
        generators = (np.random.default_rng([stream, seed]) for seed in range(SEEDS))
        return np.array(
            [search(times, configurations, given, it, goal) for it in generators], float
        )

    return counts(seeds, 1), counts(none, 2)


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

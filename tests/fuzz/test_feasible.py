"""Wrong and random arguments for feasible sets and factorisations."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzzing import CASES, attempt, integers, mutated, row_count, tape_arguments, thread_count

from autotune import _native as native

# No number of points that could be had, nor memory for them.
NOT_COUNTS = (-1, -(2**63), 2**62, 2**63, 2**64, None, "2", 1.5)


def random_plan(
    rng: np.random.Generator, before: int, seen: int, after: int
) -> tuple[Any, int, list[Any]]:
    """A program over a state and a signature, the state after it, and checks of its outputs."""
    if before == 0 and seen == 0 and after == 0 and rng.random() < 0.5:
        return None, 0, []
    tape = tape_arguments(rng, inputs=before + seen)
    if len(tape["outputs"]) == 0:
        tape["constants"], tape["outputs"] = np.ones(1, np.int64), np.zeros(1, np.int32)
        tape["operations"], tape["operands"] = np.zeros(0, np.uint8), np.zeros((0, 3), np.int32)
    outputs = max(after, len(tape["outputs"]))
    tape["outputs"] = np.resize(tape["outputs"], outputs)
    checks = []
    for _ in range(int(rng.integers(0, 4))):
        ends = rng.integers(-1, outputs, 2).tolist()
        slots = np.sort(rng.integers(0, after + 1, 2)).tolist()
        least, most = -(2**40), int(rng.integers(0, 2**20))
        values = np.sort(rng.integers(0, 40, int(rng.integers(0, 20)) * int(rng.integers(0, 2))))
        checks.append(([*ends, least, most, *slots], values.tolist()))
    return native.TapeProgram(**{**tape, "simd": "best"}), after, checks


def set_arguments(rng: np.random.Generator) -> dict[str, Any]:
    """Arguments of a ``FeasibleSet``: few rows for each of a few groups of columns."""
    widths = rng.integers(1, 4, int(rng.integers(0, 5)))
    columns = np.split(rng.permutation(int(widths.sum())), np.cumsum(widths)[:-1])
    groups, plans = [], []
    state = 0
    for index, width in enumerate(widths.tolist()):
        rows = np.unique(rng.integers(1, 9, (int(rng.integers(0, 13)), width)), axis=0)
        seen = int(rng.integers(0, 3))
        signatures = rng.integers(1, 5, (len(rows), seen))
        groups.append((columns[index].tolist(), rows.astype(np.int64), signatures))
        after = 0 if index == len(widths) - 1 else int(rng.integers(0, 3))
        plans.append(random_plan(rng, state, seen, after))
        state = after
    return {"width": int(widths.sum()), "groups": groups, "plans": plans, "limit": 10**6}


def spoiled(rng: np.random.Generator, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments, often with a part of a group, of a plan or of a check made wrong."""
    result = mutated(rng, arguments)
    if not isinstance(result["groups"], list) or not isinstance(result["plans"], list):
        return result
    for name, keys in (("groups", "abc"), ("plans", "abc")):
        items = list(result[name])
        at = int(rng.integers(max(1, len(items))))
        if items and isinstance(items[at], tuple) and rng.random() < 0.3:
            items[at] = tuple(mutated(rng, dict(zip(keys, items[at], strict=True))).values())
            result[name] = items
    return result


def use(rng: np.random.Generator, feasible: Any, width: int) -> int:
    """Call everything that a feasible set can do; returns how much of it was done."""
    count, done = row_count(rng), 0
    drawing = {"seed": int(rng.integers(2**62)), "first": 0, "threads": thread_count(rng)}
    drawn = attempt(feasible.uniform, {"count": count, **mutated(rng, drawing)})
    attempt(feasible.stratified, {"count": count, **mutated(rng, drawing)})
    for name in ("uniform", "stratified"):
        wrong = NOT_COUNTS[int(rng.integers(len(NOT_COUNTS)))]
        assert attempt(getattr(feasible, name), {"count": wrong, **drawing}) is None
    rows = integers(rng, (count, width)) if drawn is None else drawn
    done += attempt(feasible.neighbours, mutated(rng, {"rows": rows, **drawing})) is not None
    pair = {"mothers": rows, "fathers": rows[::-1].copy(), **drawing}
    done += attempt(feasible.crossover, mutated(rng, pair)) is not None
    threads = drawing["threads"]
    done += (
        attempt(feasible.contains, mutated(rng, {"rows": rows, "threads": threads})) is not None
    )
    high, low = feasible.count
    most = min(4, (high << 64) + low)
    done += attempt(feasible.list, {"first": (0, 0), "count": most}) is not None
    pieces = [(0, 1), (2**64 - 1, 2**64 - 1), (high, low), (-1, 0), None]
    attempt(feasible.list, {"first": pieces[int(rng.integers(len(pieces)))], "count": 4})
    columns = rng.integers(0, width, 2).tolist() if width else []
    values = [[1, 2, 3] for _ in columns]
    restricting = mutated(rng, {"columns": columns, "values": values})
    restricted = attempt(feasible.restricted, restricting)
    if restricted is not None:
        attempt(restricted.uniform, {"count": 3, **drawing})
        done += 1
    return done


def test_feasible_sets_survive() -> None:
    made = used = filled = 0
    for seed in range(2 * CASES):
        rng = np.random.default_rng(seed)
        arguments = set_arguments(rng)
        feasible = attempt(native.FeasibleSet, spoiled(rng, arguments))
        width = arguments["width"]
        del arguments  # A feasible set must not need the programs that it was made from.
        if feasible is None:
            continue
        made += 1
        filled += feasible.count != (0, 0)
        assert feasible.edges >= 0 and all(rows >= 0 for rows in feasible.group_rows)
        used += use(rng, feasible, width)
    assert made > CASES / 2 and filled > CASES / 8 and used > CASES / 2


def test_factorisations_survive() -> None:
    made = 0
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        domains: list[list[int] | None] = []
        for _ in range(int(rng.integers(0, 5))):
            values = np.unique(rng.integers(1, 20, int(rng.integers(0, 9)))).tolist()
            domains.append(values if rng.random() < 0.5 else None)
        arguments = {"total": int(rng.integers(0, 5000)), "domains": domains, "limit": 10**5}
        rows = attempt(native.ordered_factorizations, mutated(rng, arguments))
        if rows is not None:
            assert rows.dtype == np.int64 and rows.ndim == 2
            made += 1
    assert made > CASES / 8


def test_counters_of_random_numbers() -> None:
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        counter = rng.integers(0, 2**32, 4).tolist()
        key = rng.integers(0, 2**32, 2).tolist()
        attempt(native.philox4x32, mutated(rng, {"counter": counter, "key": key}))

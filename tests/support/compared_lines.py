"""Results of comparisons, made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.evaluation.compare import Budget, ComparedWorkload, Contender, Piece, Plan

Found = Sequence[tuple[int, float, float]]


def plan_of(
    workloads: Sequence[str],
    contenders: Sequence[str],
    seeds: int,
    trials: int = 100,
    **fields: Any,
) -> Plan:
    """A plan of workloads and contenders with these names."""
    given: dict[str, Any] = {
        "workloads": tuple(ComparedWorkload(it, f"digest of {it}", ("gemm",)) for it in workloads),
        "contenders": tuple(Contender(it, ("--strategy", it)) for it in contenders),
        "seeds": seeds,
        "budget": Budget(100, None),
        "common": ("--threads", "1"),
        "setting": {"target": "some", "fingerprint": "0123", "threads": 1},
    }
    return Plan(**{**given, **fields})


def run_line(piece: Piece, found: Found, *, trials: int | None = 100, wall: float = 20.0) -> Any:
    """A run that had these programs: trial counted from 0, elapsed seconds, seconds per call.

    Its own clock began a second after the command.
    """
    steps = [{"trial": t, "elapsed": at, "seconds": [s, 2 * s, s]} for t, at, s in found]
    return {
        "kind": "run",
        "workload": piece.workload,
        "digest": f"digest of {piece.workload}",
        "contender": piece.contender,
        "seed": piece.seed,
        "trials": trials,
        "arguments": ["--strategy", piece.contender],
        "wall": wall,
        "spent": wall + 1,
        "latency": found[-1][2] if found else None,
        "schedule": {"made": "up"} if found else None,
        "steps": steps,
        "history": [[number, 1.0, None] for number in range(trials or 40)],
        "seconds": {"total": wall - 1},
    }


def turns_line(workload: str, latencies: Mapping[str, float], **errors: str) -> Any:
    """The turns of winners, in the second of which the machine was slow for all."""
    turns = {label: [s, 3 * s, s] for label, s in latencies.items()}
    return {"kind": "turns", "workload": workload, "turns": turns, "errors": errors}

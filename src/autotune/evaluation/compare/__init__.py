"""Tuners beside each other: equal budgets, fresh processes, winners timed in turns, intervals."""

from __future__ import annotations

from autotune.evaluation.compare.figures import (
    NEAR,
    Cell,
    Pair,
    Study,
    cell_of,
    curve_of,
    pairs_of,
    read_study,
    speedup_over,
    verdict,
)
from autotune.evaluation.compare.pieces import append_piece, read_pieces
from autotune.evaluation.compare.plan import (
    BASELINE,
    COMPARE_SCHEMA,
    COMPARE_VERSION,
    Budget,
    ComparedWorkload,
    Contender,
    Piece,
    Plan,
    check_same_study,
    named_arguments,
)
from autotune.evaluation.compare.runs import (
    Point,
    Run,
    geometric_mean,
    improvements,
    read_run,
    true_latencies,
)
from autotune.evaluation.compare.session import Progress, complete, done_runs
from autotune.evaluation.compare.tables import compare_json, compare_tables, csv_text
from autotune.evaluation.compare.tuning_process import RunFailed, tune_once
from autotune.evaluation.compare.turns import (
    Arena,
    long_protocol,
    steps_of,
    time_programs,
    time_steps,
)

__all__ = [
    "BASELINE",
    "COMPARE_SCHEMA",
    "COMPARE_VERSION",
    "NEAR",
    "Arena",
    "Budget",
    "Cell",
    "ComparedWorkload",
    "Contender",
    "Pair",
    "Piece",
    "Plan",
    "Point",
    "Progress",
    "Run",
    "RunFailed",
    "Study",
    "append_piece",
    "cell_of",
    "check_same_study",
    "compare_json",
    "compare_tables",
    "complete",
    "csv_text",
    "curve_of",
    "done_runs",
    "geometric_mean",
    "improvements",
    "long_protocol",
    "named_arguments",
    "pairs_of",
    "read_pieces",
    "read_run",
    "read_study",
    "speedup_over",
    "steps_of",
    "time_programs",
    "time_steps",
    "true_latencies",
    "tune_once",
    "verdict",
]

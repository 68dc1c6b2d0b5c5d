"""Command lines on models that need no compiler."""

from __future__ import annotations

from autotune.testing.reference_frontend import REFERENCE_FRONTEND

MODEL = (
    "autotune.testing.reference_frontend:three_layers",
    *("--frontend", REFERENCE_FRONTEND, "--threads", "1"),
)
TUNE_MODEL = (
    *("tune-model", *MODEL, "--measurer", "command_lines:ScriptedMeasurer"),
    *("--strategy", "random", "--round-size", "4", "--trials", "12"),
)
BUILD_MODEL = ("build-model", *MODEL)
MODEL_TASKS = ("model-tasks", *MODEL)
BENCH_MODEL = ("bench-model", *MODEL, "--turns", "2", "--seconds", "0.02", "--quiet")

"""A candidate's steps with their values, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from autotune.ir.expressions import IntExpr
from autotune.ir.expressions.integer import evaluate
from autotune.sketches import Candidate
from autotune.sketches.steps import Step, step_name

__all__ = ["step_lines"]


def step_lines(candidate: Candidate) -> list[str]:
    """Write a line per step, expressions evaluated, and the configuration at the end.

    Fields are left out that are no part of how a step is represented, being too long.
    """
    lines = [f"sketch {candidate.sketch.name}"]
    lines += [
        f"{number:3}. {_step(step, candidate.config)}"
        for number, step in enumerate(candidate.sketch.steps, 1)
    ]
    config = ", ".join(f"{name}={value}" for name, value in candidate.config.items())
    return [*lines, f"config {config}"]


def _step(step: Step, config: Mapping[str, int]) -> str:
    fields = {
        attribute.name: _value(getattr(step, attribute.name), config)
        for attribute in attrs.fields(type(step))
        if attribute.repr
    }
    listed = ", ".join(f"{name}={value}" for name, value in fields.items() if value != "None")
    return f"{step_name(step):<13} {listed}"


def _value(value: Any, config: Mapping[str, int]) -> str:
    if isinstance(value, IntExpr):
        return str(int(evaluate(value, dict(config))))
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(item, config) for item in value) + "]"
    return str(value)

"""Sketches that the built-in rules make of small workloads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import numpy as np
from attrs import evolve

from autotune.ir.expressions import Load, var
from autotune.ir.workloads import Workload, random_inputs
from autotune.sketches import STEP_TYPES, Candidate, Pack, Sketch, Step
from autotune.sketches.steps import step_name
from autotune.spaces import BUILT_IN_RULES, ScheduleLimits
from autotune.spaces.rules import generate_sketches
from autotune.targets import Target, preset
from autotune.testing.programs import check_nest

TARGET = preset("skylake-avx512-4core")

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "backend test")

ROWS, COLUMNS, DEPTH = 32, 48, 20


def sketches(
    workload: Workload, limits: ScheduleLimits = LIMITS, target: Target = TARGET
) -> tuple[Sketch, ...]:
    return generate_sketches(workload, target, limits, BUILT_IN_RULES).sketches


def lacking(*steps: str) -> ScheduleLimits:
    """Limits of a backend that has everything but these steps."""
    return evolve(LIMITS, steps=LIMITS.steps - set(steps))


def of_kind(sketch: Sketch, kind: type[Any]) -> list[Any]:
    """Its steps of one kind."""
    return [step for step in sketch.core_steps if isinstance(step, kind)]


def step_text(step: Step) -> str:
    """Its name and what it says, in words."""
    words = [step_name(step)]
    for field in attrs.fields(type(step)):
        value = getattr(step, field.name)
        words += map(str, value) if isinstance(value, tuple) else [str(value)]
    return " ".join("-" if word == "None" else word for word in words)


def domains(sketch: Sketch) -> dict[str, tuple[int, ...] | None]:
    """Values of each parameter."""
    return {param.name: param.values for param in sketch.params}


def check_facts(workload: Workload, facts: str, name: str = "", target: Target = TARGET) -> None:
    """Check all sketches whose names begin so, or the one that is called so.

    Facts are ``pack Y X ...``: the steps of this kind for this stage, in a row; ``pack: A B``: the
    operands, or the stages, of all of this kind; ``!pack``: there is none; ``Y.i.1 = 1 2``: the
    values of a parameter, ``-`` where there is none; ``without pack``: of a backend that lacks it.
    """
    parts = facts.split(", ")
    missing = [part.split()[1] for part in parts if part.startswith("without ")]
    made = sketches(workload, lacking(*missing), target)
    exact = [it for it in made if it.name == name]
    found = exact or [it for it in made if it.name.startswith(name)]
    assert found
    for sketch in found:
        texts = [step_text(step) for step in sketch.core_steps]
        for part in parts[len(missing) :]:
            key, _, values = part.partition(" = ")
            kind, *subjects = key.split()
            if values:
                known = domains(sketch).get(key)
                assert ("-" if known is None else " ".join(map(str, known))) == values
            elif kind.endswith(":"):
                about = {_subject(it) for it in sketch.core_steps if step_name(it) == kind[:-1]}
                assert about == set(subjects)
            elif kind.startswith("!"):
                none = key[1:].split()
                assert not any(text.split()[: len(none)] == none for text in texts)
            else:
                assert _alike(texts, key) == _alike(parts, key)


def _subject(step: Any) -> str:
    return str(step.operand if isinstance(step, Pack) else step.stage)


def _alike(texts: Iterable[str], key: str) -> list[str]:
    """Texts of the same kind, for the same stage, of the same axis or threads."""
    kind, stage, *rest = key.split()
    found = [it for it in texts if it.split()[0] == kind]
    if kind != "fuse_producer":
        found = [it for it in found if it.split()[1] == stage]
    if kind == "tile":
        return [it for it in found if it.split()[2] == rest[0]]
    return [it for it in found if kind != "bind" or it.split()[-1] == rest[-1]]


def check_reference(
    workload: Workload, candidates: Iterable[Candidate], seed: int = 0, tolerance: float = 1e-5
) -> None:
    """Check that candidates compute the reference by their nests."""
    inputs = random_inputs(workload, np.random.default_rng(seed))
    for candidate in candidates:
        check_nest(candidate, inputs, tolerance=tolerance)


def steps_of(workload: Workload, kind: type[Any]) -> set[Step]:
    """Steps of one kind, which every sketch of the workload must agree on."""
    found = [
        {step for step in sketch.steps if isinstance(step, kind)} for sketch in sketches(workload)
    ]
    assert all(steps == found[0] for steps in found)
    return found[0]


def load(tensor: str, *axes: str) -> Load:
    return Load(tensor, tuple(var(axis) for axis in axes))


ROW_FUSIONS = [
    f"{place}-fusion{recompute}{partials}"
    for place in ("row", "block")
    for recompute in ("", "-recompute")
    for partials in ("", "-narrow", "-wide")
]

NOT_BLOCKED = ["direct", "plain-outer", "plain-rows"]

EVERY_PACKING = [
    *NOT_BLOCKED,
    "packed-root",
    "packed-panel",
    "packed-root-rows",
    "packed-panel-outer",
]

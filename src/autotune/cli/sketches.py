"""Sketches of a space itself, without records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autotune.cli.programs import importing_backend, read_workload
from autotune.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from autotune.cli.query import Selected
    from autotune.report.table import Table
    from autotune.sketches import Sketch
    from autotune.spaces import SearchSpace

__all__ = [
    "asked_space",
    "constraints_text",
    "problem_json",
    "sketch_parts",
    "sketches_json",
    "sketches_table",
]


def sketches_table(space: SearchSpace) -> Table:
    """The sketches of a space; below them the ones that it leaves out, and why."""
    from autotune.report.table import Table

    rows = tuple(
        (sketch.name, str(len(sketch.params)), f"{_count(sketch):,}")
        for sketch in space.sketches()
    )
    notes = [f"left out: {name}, which {reason}" for name, reason in space.left_out.items()]
    notes += [
        f"{name} drops constraints that no configuration meets: {', '.join(sources)}"
        for name, sources in space.loosened.items()
    ]
    notes += space.notes
    return Table("", ("sketch", "parameters>", "configurations>"), rows, tuple(notes))


def sketches_json(space: SearchSpace) -> dict[str, Any]:
    """The same for machines."""
    sketches = [
        {"name": it.name, "parameters": len(it.params), "configurations": _count(it)}
        for it in space.sketches()
    ]
    loosened = {name: list(sources) for name, sources in space.loosened.items()}
    return {
        "sketches": sketches,
        "left_out": dict(space.left_out),
        "loosened": loosened,
        "notes": list(space.notes),
    }


def _count(sketch: Sketch) -> int:
    from autotune.spaces.feasible import build_feasible_set

    return build_feasible_set(sketch).count


def sketch_parts(
    space: SearchSpace, name: str, wanted: Sequence[str]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Texts of a sketch without a configuration, by part, and the JSON form of all.

    Raises:
        InvalidValueError: the space leaves it out.
        UnknownNameError: there is none of that name.
    """
    from autotune.nest import describe, describe_tape, nest_tape

    sketches = {sketch.name: sketch for sketch in space.sketches()}
    if name in space.left_out:
        reason = space.left_out[name]
        raise InvalidValueError(f"the space leaves out sketch {name!r}, which {reason}")
    if name not in sketches:
        raise UnknownNameError("sketch", name, sketches, _left_out_text(space.left_out))
    sketch = sketches[name]
    texts = {
        "nest": lambda: describe(sketch),
        "tape": lambda: describe_tape(nest_tape(sketch).tape),
        "constraints": lambda: constraints_text(sketch),
    }
    shown = {part: texts[part]() for part in wanted}
    return shown, {"sketch": sketch.to_json(), **shown, **problem_json(sketch, shown)}


def constraints_text(sketch: Sketch) -> str:
    """The constraint problem of a sketch, with the number of its solutions."""
    from autotune.spaces.feasible import build_feasible_set
    from autotune.spaces.problems import describe_problem, problem_of

    return describe_problem(problem_of(sketch), build_feasible_set(sketch).count)


def problem_json(sketch: Sketch, shown: Mapping[str, str]) -> dict[str, Any]:
    """The constraint problem as JSON, where its text is shown."""
    from autotune.spaces.problems import problem_of

    return {"problem": problem_of(sketch).to_json()} if "constraints" in shown else {}


def _left_out_text(left_out: Mapping[str, str]) -> str:
    """A sentence on the sketches that a space does not have; "" where there are none."""
    if not left_out:
        return ""
    reasons = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
    return f"Left out: {reasons}."


def asked_space(asked: Selected, space: str | None) -> SearchSpace:
    """The space that ``autotune tune`` would search."""
    from autotune.backends import Backend
    from autotune.plugins.guarded_parts import create_held_part
    from autotune.spaces import SpaceContext
    from autotune.tuning.options import described_target
    from autotune.tuning.programs import default_backend

    program, backend = asked.file(), asked.backend
    if program is not None:
        made = read_workload(program)
        backend = backend or importing_backend(program)
    else:
        made = asked.named("--sketch needs a workload, such as gemm")
    machine = described_target(asked.target or "cpu", asked.threads)
    replayer: Backend = create_held_part("backend", backend or default_backend(machine))
    replayer.check_workload(made)
    context = SpaceContext(
        workload=made,
        target=machine,
        limits=replayer.limits(machine),
        backend=replayer.name,
    )
    created: SearchSpace = create_held_part("search_space", space or "sketch", context)
    return created

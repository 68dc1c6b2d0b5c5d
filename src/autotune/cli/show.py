"""``autotune show``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import json_option, space_option
from autotune.cli.query import (
    Query,
    chosen_record,
    open_for_reading,
    query_options,
    record_json,
)

if TYPE_CHECKING:
    from autotune.cli.output import Output
    from autotune.sketches import Sketch
    from autotune.spaces import SearchSpace
    from autotune.store.records import Record

__all__ = ["asked_space", "command"]

EPILOG = """\b
Examples:
  autotune show gemm --shape m=512,n=512,k=512 --database records.db
  autotune show --record 0123456789ab/17
  autotune show gemm --shape m=512,n=512,k=512 --tape
  autotune show gemm --shape m=512,n=512,k=512 --tape --sketch packed-panel
  autotune show gemm --shape m=512,n=512,k=512 --constraints --sketch packed-panel
  autotune show gemm --shape m=8,n=8,k=8 --space sketch+my-rule --sketch my-sketch
"""

TITLES = {
    "readings": "Readings",
    "steps": "Steps",
    "script": "Script",
    "nest": "Loop nest",
    "tape": "Tape",
    "constraints": "Constraints",
}
USUAL = ("readings", "steps", "script", "nest")
SYMBOLIC = ("nest", "tape", "constraints")
USUAL_SYMBOLIC = ("nest", "tape")


@click.command("show", epilog=EPILOG)
@query_options
@click.option("--record", "record_id", metavar="RUN/TRIAL", help="A record, as `best` names it.")
@click.option(
    "--part",
    "parts",
    type=click.Choice(list(TITLES)),
    multiple=True,
    help="Show only this part; may be repeated.",
)
@click.option("--tape", is_flag=True, help="Short for --part tape.")
@click.option(
    "--constraints",
    is_flag=True,
    help="Short for --part constraints: the constraints on the parameters and their origin.",
)
@click.option(
    "--sketch",
    "sketch_name",
    metavar="NAME",
    help="Show a sketch of the space itself, with expressions for numbers; needs no record.",
)
@space_option
@json_option
def command(
    database: str,
    record_id: str | None,
    parts: tuple[str, ...],
    tape: bool,
    constraints: bool,
    sketch_name: str | None,
    space: str | None,
    json_path: str | None,
    **options: Any,
) -> int:
    """Show the fastest recorded schedule of WORKLOAD, or a given record.

    What observers read of it, its steps and parameters, the scheduled program in the compiler's
    own language, and the loop nest that the search reasoned about. With --tape every quantity that
    was derived from it, with --constraints the constraint problem of the sketch: each constraint
    with the step it comes from, and the exact number of solutions.
    """
    from autotune.cli.app import NOTHING_FOUND
    from autotune.cli.output import Output, notify
    from autotune.errors import DatabaseError, InvalidValueError

    flags = {"tape": tape, "constraints": constraints}
    wanted = (*parts, *(part for part, given in flags.items() if given))
    output = Output(json_path)
    if sketch_name is not None:
        options["space"] = space
        return _show_sketch(output, sketch_name, record_id, wanted or USUAL_SYMBOLIC, options)
    if space is not None:
        raise InvalidValueError("--space goes with --sketch; a record has a sketch of its own")
    query = Query.read(**options)
    try:
        with open_for_reading(database) as opened:
            record = chosen_record(opened, query, record_id)
            missing = query.none_matches(opened) if record is None else ""
    except DatabaseError as error:
        if wanted and set(wanted) <= set(SYMBOLIC):
            hint = "a sketch of the space itself needs no record: name it by --sketch"
            raise DatabaseError(f"{error}; {hint}") from error
        raise
    if record is None:
        notify(f"autotune: {missing}")
        output.json(None)
        return NOTHING_FOUND
    return _show_record(output, record, wanted or USUAL, query.backend)


def _show_record(
    output: Output, record: Record, wanted: Sequence[str], backend: str | None
) -> int:
    from autotune.nest import describe, describe_tape, nest_tape
    from autotune.report import reading_lines, records_table, step_lines
    from autotune.tuning.foreign_programs import show_record

    candidate = record.candidate
    parts_named = wanted is not USUAL
    texts = {
        "readings": lambda: (
            "\n".join(reading_lines(record.outcome.readings)) or "nothing was observed"
        ),
        "steps": lambda: "\n".join(step_lines(candidate)),
        "script": lambda: show_record(record, backend),
        "nest": lambda: describe(candidate.sketch, candidate.config),
        "tape": lambda: describe_tape(nest_tape(candidate.sketch).tape, candidate.config),
        "constraints": lambda: _constraints(candidate.sketch),
    }
    whole = candidate.sketch.is_opaque
    is_external = bool(candidate.sketch.workload.external)
    if whole:
        # Its one step does not describe loops.
        name = record.baseline or f"sketch {candidate.sketch.name!r}"
        opaque = f"{name} is the compiler's own: it has no symbolic nest"
        if is_external:
            opaque = "an external program has no symbolic nest"
            texts["steps"] = texts["script"]
        texts |= dict.fromkeys(SYMBOLIC, lambda: opaque)
    if wanted is USUAL and is_external:
        wanted = ("readings", "steps")
    shown = {part: texts[part]() for part in TITLES if part in wanted}
    if not parts_named and not record.outcome.readings:
        del shown["readings"]
    problem = {} if whole else _problem(candidate.sketch, shown)
    output.json({"record": record_json(record), **shown, **problem})
    output.table(records_table([record]))
    return _say(output, shown, {**TITLES, "steps": "Configuration"} if is_external else TITLES)


def _show_sketch(
    output: Output,
    name: str,
    record_id: str | None,
    wanted: Sequence[str],
    options: Mapping[str, Any],
) -> int:
    """A sketch of a fresh space, without a configuration."""
    from autotune.errors import InvalidValueError, UnknownNameError
    from autotune.nest import describe, describe_tape, nest_tape

    if record_id is not None:
        raise InvalidValueError("--record and --sketch exclude each other")
    for part in wanted:
        if part not in SYMBOLIC:
            raise InvalidValueError(
                f"--part {part} needs a record; a sketch has nest, tape and constraints"
            )
    space = asked_space(**options)
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
        "constraints": lambda: _constraints(sketch),
    }
    shown = {part: texts[part]() for part in SYMBOLIC if part in wanted}
    output.json({"sketch": sketch.to_json(), **shown, **_problem(sketch, shown)})
    return _say(output, shown)


def _constraints(sketch: Sketch) -> str:
    from autotune.spaces.feasible import build_feasible_set
    from autotune.spaces.problems import describe_problem, problem_of

    return describe_problem(problem_of(sketch), build_feasible_set(sketch).count)


def _problem(sketch: Sketch, shown: Mapping[str, str]) -> dict[str, Any]:
    """The constraint problem as JSON, where its text is shown."""
    from autotune.spaces.problems import problem_of

    return {"problem": problem_of(sketch).to_json()} if "constraints" in shown else {}


def _say(output: Output, shown: Mapping[str, str], titles: Mapping[str, str] = TITLES) -> int:
    from autotune.cli.app import OK

    for part, text in shown.items():
        output.say(f"\n{titles[part]}\n\n{text.rstrip()}")
    return OK


def _left_out_text(left_out: Mapping[str, str]) -> str:
    """A sentence on the sketches that a space does not have; "" where there are none."""
    if not left_out:
        return ""
    reasons = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
    return f"Left out: {reasons}."


def asked_space(
    workload: str | None,
    shape: tuple[str, ...],
    dtype: str | None,
    mlir_path: str | None,
    function: str | None,
    target: str | None,
    backend: str | None,
    threads: int | None,
    space: str | None,
) -> SearchSpace:
    """The space that ``autotune tune`` would search."""
    from autotune.backends import Backend
    from autotune.cli.programs import (
        asked_program,
        importing_backend,
        named_workload,
        read_workload,
    )
    from autotune.errors import InvalidValueError
    from autotune.plugins import Context
    from autotune.plugins.held import create_held_part
    from autotune.tuning.options import checked_target
    from autotune.tuning.programs import default_backend

    program = asked_program(workload, shape, dtype, mlir_path, function)
    if program is not None:
        made = read_workload(program)
        backend = backend or importing_backend(program)
    elif workload is not None:
        made = named_workload(workload, shape, dtype)
    else:
        raise InvalidValueError("--sketch needs a workload, such as gemm")
    machine = checked_target(target or "cpu", threads)
    replayer: Backend = create_held_part("backend", backend or default_backend())
    replayer.check_workload(made)
    context = Context(
        workload=made,
        target=machine,
        limits=replayer.limits(machine),
        backend=replayer.name,
        threads=machine.cores,
    )
    created: SearchSpace = create_held_part("search_space", space or "sketch", context)
    return created

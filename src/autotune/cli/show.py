"""``autotune show``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from attrs import frozen

from autotune.cli.app import NOTHING_FOUND, OK
from autotune.cli.arguments import command_of, nested, option
from autotune.cli.options import space_option
from autotune.cli.output import Output, notify
from autotune.cli.query import (
    Query,
    Selected,
    chosen_record,
    open_for_reading,
    record_json,
    record_option,
)
from autotune.cli.sketches import (
    asked_space,
    constraints_text,
    problem_json,
    sketch_parts,
    sketches_json,
    sketches_table,
)
from autotune.errors import DatabaseError, InvalidValueError

if TYPE_CHECKING:
    from autotune.store.records import Record

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune show gemm --shape m=512,n=512,k=512 --database records.db
  autotune show --record 0123456789ab/17
  autotune show gemm --shape m=512,n=512,k=512 --tape
  autotune show gemm --shape m=512,n=512,k=512 --sketches
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


@frozen
class _Asked:
    selected: Selected = nested(Selected)
    record_id: str | None = record_option()
    parts: tuple[str, ...] = option(
        "--part", "Show only this part; may be repeated.", click.Choice(list(TITLES))
    )
    tape: bool = option("--tape", "Short for --part tape.")
    constraints: bool = option(
        "--constraints",
        "Short for --part constraints: the constraints on the parameters and their origin.",
    )
    sketch_name: str | None = option(
        "--sketch NAME",
        "Show a sketch of the space itself, with expressions for numbers; needs no record.",
    )
    lists_sketches: bool = option(
        "--sketches",
        "List the sketches of the space, and those that it leaves out with the reason.",
    )
    space: str | None = space_option()

    @property
    def wanted(self) -> tuple[str, ...]:
        """Parts that are named."""
        flags = {"tape": self.tape, "constraints": self.constraints}
        return (*self.parts, *(part for part, given in flags.items() if given))


@command_of("show", _Asked, EPILOG)
def command(asked: _Asked, output: Output) -> int:
    """Show the fastest recorded schedule of WORKLOAD, or a given record.

    What observers read of it, its steps and parameters, the scheduled program in the compiler's
    own language, and the loop nest that the search reasoned about. With --tape every quantity that
    was derived from it, with --constraints the constraint problem of the sketch: each constraint
    with the step it comes from, and the exact number of solutions.
    """
    wanted = asked.wanted
    if asked.lists_sketches or asked.sketch_name is not None:
        if asked.lists_sketches and (wanted or asked.sketch_name is not None):
            other = "--sketch" if asked.sketch_name is not None else f"--part {wanted[0]}"
            raise InvalidValueError(f"--sketches and {other} exclude each other")
        return _show_space(output, asked)
    if asked.space is not None:
        raise InvalidValueError(
            "--space goes with --sketch or --sketches; a record has a sketch of its own"
        )
    query = Query.read(asked.selected)
    try:
        with open_for_reading(asked.selected.database) as opened:
            record = chosen_record(opened, query, asked.record_id)
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
    return _show_record(output, record, wanted or USUAL, asked.selected.backend)


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
        "constraints": lambda: constraints_text(candidate.sketch),
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
    problem = {} if whole else problem_json(candidate.sketch, shown)
    output.json({"record": record_json(record), **shown, **problem})
    output.table(records_table([record]))
    return _say(output, shown, {**TITLES, "steps": "Configuration"} if is_external else TITLES)


def _show_space(output: Output, asked: _Asked) -> int:
    """Of a fresh space a sketch without a configuration, or the list of all."""
    name = asked.sketch_name
    if asked.record_id is not None:
        other = "--sketches" if name is None else "--sketch"
        raise InvalidValueError(f"--record and {other} exclude each other")
    wanted = asked.wanted or USUAL_SYMBOLIC
    for part in wanted:
        if part not in SYMBOLIC:
            raise InvalidValueError(
                f"--part {part} needs a record; a sketch has nest, tape and constraints"
            )
    space = asked_space(asked.selected, asked.space)
    if name is None:
        output.json(sketches_json(space))
        output.table(sketches_table(space))
        return OK
    shown, data = sketch_parts(space, name, [part for part in SYMBOLIC if part in wanted])
    output.json(data)
    return _say(output, shown)


def _say(output: Output, shown: Mapping[str, str], titles: Mapping[str, str] = TITLES) -> int:
    for part, text in shown.items():
        output.say(f"\n{titles[part]}\n\n{text.rstrip()}")
    return OK

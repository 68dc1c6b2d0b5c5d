"""``autotune explain``."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict, frozen

from autotune.cli.app import NOTHING_FOUND, OK
from autotune.cli.arguments import command_of, nested, option
from autotune.cli.destinations import InputFile, OutputFile
from autotune.cli.options import read_options, space_option
from autotune.cli.output import Output, notify, write_text
from autotune.cli.query import (
    Query,
    Selected,
    chosen_record,
    open_for_reading,
    record_option,
)
from autotune.cli.sketches import asked_space
from autotune.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from autotune.models.cost import CostModel, DifferentiableCostModel
    from autotune.sketches import Candidate
    from autotune.store.records import Record
    from autotune.targets import Target

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune explain gemm --shape m=512,n=512,k=512 --database records.db
  autotune explain --record 0123456789ab/17 --plot slopes.svg
  autotune explain gemm --shape m=512,n=512,k=512 --config config.json --cost-model analytic

A configuration in a file: {"sketch": "packed-panel", "config": {"i.0": 4, ...}}
"""


@frozen
class _Asked:
    selected: Selected = nested(Selected)
    record_id: str | None = record_option()
    config_path: str | None = option(
        "--config FILE",
        "A configuration in JSON, of the space that WORKLOAD has here; needs no record.",
        InputFile(),
    )
    space: str | None = space_option()
    cost_model: str = option(
        "--cost-model",
        "A cost model with a gradient. It learns from the records of the same program first.",
        shown="analytic",
    )
    cost_model_options: tuple[str, ...] = option(
        "--cost-model-option K=V", "Option of the cost model; may be repeated."
    )
    model_path: str | None = option(
        "--load-cost-model FILE", "Start from a model file of `train fit`.", InputFile()
    )
    limit: int = option("--limit", "Rows of a table.", click.IntRange(min=1), shown=10)
    plot_path: str | None = option(
        "--plot FILE",
        "Also draw the slopes, as SVG; - for standard output.",
        OutputFile("plot"),
    )


@command_of("explain", _Asked, EPILOG)
def command(asked: _Asked, output: Output) -> int:
    """Explain what would make a schedule faster, and which constraints prevent it.

    For the fastest recorded schedule of WORKLOAD, a given record, or a configuration in a file:
    how the predicted latency changes with every parameter and every feature that the cost model
    reads; single steps that are legal, with the speed they are predicted to have; faster steps
    that are not legal, and what forbids them.
    """
    from autotune.models.cost import split_learn
    from autotune.models.explanation import explain
    from autotune.report.explanation import explanation_svg, explanation_tables
    from autotune.targets import Target

    if asked.record_id is not None and asked.config_path is not None:
        raise InvalidValueError("--record and --config exclude each other")
    told: list[Record] = []
    if asked.config_path is not None:
        candidate, target = _from_file(asked.config_path, asked)
    elif asked.space is not None:
        raise InvalidValueError("--space goes with --config; a record has a sketch of its own")
    else:
        record, told = _from_database(asked)
        if record is None:
            output.json(None)
            return NOTHING_FOUND
        candidate, target = record.candidate, Target.from_json(record.target)
    name = asked.cost_model
    options = read_options(asked.cost_model_options, "--cost-model-option")
    learns, options = split_learn(name, options)
    model = _model(name, target, options, asked.model_path)
    told = told if learns else []
    model.update([(each.candidate, each.outcome) for each in told])
    explanation = explain(model, candidate)
    found = asdict(explanation, filter=lambda field, _: field.name != "candidate")
    output.json({"candidate": candidate.to_json(), "cost_model": name, **found})
    where = f"{candidate.sketch.workload.name}, sketch {candidate.sketch.name!r}"
    output.say(f"{where}, by {name!r} after {len(told)} outcomes")
    for table in explanation_tables(explanation, asked.limit):
        output.say()
        output.table(table)
    if asked.plot_path is not None:
        write_text(asked.plot_path, explanation_svg(explanation, where))
    return OK


def _model(
    name: str, target: Target, options: dict[str, Any], path: str | None
) -> DifferentiableCostModel:
    from autotune.models import ModelContext
    from autotune.models.cost import ModelFile, TrainableCostModel, require_differentiable
    from autotune.models.host import differentiable_names
    from autotune.plugins.parts import create_part

    made: CostModel = create_part("cost_model", name, ModelContext(target=target, options=options))
    model = require_differentiable(made, differentiable_names())
    model.warm_up()
    if path is not None:
        if not isinstance(model, TrainableCostModel):
            raise InvalidValueError(
                f"cost model {name!r} cannot be loaded from a file: it is not trained beforehand"
            )
        model.load(ModelFile.at(path).open())
    return model


def _from_database(asked: _Asked) -> tuple[Record | None, list[Record]]:
    """The record that is meant, and all of the same program under the same conditions."""
    from autotune.store.database import RecordFilter

    with open_for_reading(asked.selected.database) as opened:
        query = Query.read(asked.selected)
        if asked.record_id is None:
            # A baseline has nothing that could be changed.
            record = min(query.fastest(opened), key=attrgetter("rank"), default=None)
        else:
            record = chosen_record(opened, query, asked.record_id)
        if record is None:
            notify(f"autotune: {query.none_matches(opened)}")
            return None, []
        if record.baseline:
            raise InvalidValueError(
                f"record {record.name} is {record.baseline}, which has no parameters to explain; "
                "name a candidate's record: RUN/TRIAL"
            )
        workload = record.candidate.sketch.workload.digest
        where = RecordFilter(workload=workload, key=record.key)
        return record, list(opened.records(where))


def _from_file(path: str, asked: _Asked) -> tuple[Candidate, Target]:
    """The configuration in a file, of a sketch of the space that the options describe."""
    from autotune.ir.text_files import read_text_file
    from autotune.sketches import Candidate, CandidateBatch
    from autotune.tuning.options import described_target

    try:
        data = json.loads(read_text_file(path))
        name, config = str(data["sketch"]), dict(data["config"])
    except OSError as error:
        raise InvalidValueError(f"--config {path!r} cannot be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(
            f'--config {path!r} is not of the form {{"sketch": NAME, "config": '
            f'{{"PARAMETER": VALUE, ...}}}}: {error}'
        ) from error
    space = asked_space(asked.selected, asked.space)
    sketches = {sketch.name: sketch for sketch in space.sketches()}
    if name not in sketches:
        raise UnknownNameError("sketch", name, sketches)
    for key, value in config.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidValueError(f"--config {path!r}: {key!r} is not a whole number: {value!r}")
    candidate = Candidate.from_config(sketches[name], config)
    if not space.contains(CandidateBatch.of([candidate]))[0]:
        raise InvalidValueError(
            f"the configuration in {path!r} does not satisfy the constraints of sketch {name!r}"
        )
    return candidate, described_target(asked.selected.target or "cpu", asked.selected.threads)

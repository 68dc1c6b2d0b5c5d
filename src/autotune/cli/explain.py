"""``autotune explain``."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.destinations import InputFile, OutputFile
from autotune.cli.options import json_option, read_options, space_option
from autotune.cli.query import Query, chosen_record, open_for_reading, query_options

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


@click.command("explain", epilog=EPILOG)
@query_options
@click.option("--record", "record_id", metavar="RUN/TRIAL", help="A record, as `best` names it.")
@click.option(
    "--config",
    "config_path",
    metavar="FILE",
    type=InputFile(),
    help="A configuration in JSON, of the space that WORKLOAD has here; needs no record.",
)
@space_option
@click.option(
    "--cost-model",
    default="analytic",
    show_default=True,
    help="A cost model with a gradient. It learns from the records of the same program first.",
)
@click.option(
    "--cost-model-option",
    "cost_model_options",
    metavar="K=V",
    multiple=True,
    help="Option of the cost model; may be repeated.",
)
@click.option(
    "--load-cost-model",
    "model_path",
    metavar="FILE",
    type=InputFile(),
    help="Start from a model file of `train fit`.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Rows of a table."
)
@click.option(
    "--plot",
    "plot_path",
    metavar="FILE",
    type=OutputFile("plot"),
    help="Also draw the slopes, as SVG; - for standard output.",
)
@json_option
def command(
    database: str,
    record_id: str | None,
    config_path: str | None,
    space: str | None,
    cost_model: str,
    cost_model_options: tuple[str, ...],
    model_path: str | None,
    limit: int,
    plot_path: str | None,
    json_path: str | None,
    **options: Any,
) -> int:
    """Explain what would make a schedule faster, and which constraints prevent it.

    For the fastest recorded schedule of WORKLOAD, a given record, or a configuration in a file:
    how the predicted latency changes with every parameter and every feature that the cost model
    reads; single steps that are legal, with the speed they are predicted to have; faster steps
    that are not legal, and what forbids them.
    """
    from attrs import asdict

    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output, write_text
    from autotune.errors import InvalidValueError
    from autotune.models.cost import split_learn
    from autotune.models.explanation import explain
    from autotune.report.explanation import explanation_svg, explanation_tables
    from autotune.targets import Target

    if record_id is not None and config_path is not None:
        raise InvalidValueError("--record and --config exclude each other")
    told: list[Record] = []
    if config_path is not None:
        candidate, target = _from_file(config_path, {**options, "space": space})
    elif space is not None:
        raise InvalidValueError("--space goes with --config; a record has a sketch of its own")
    else:
        record, told = _from_database(database, record_id, options)
        if record is None:
            Output(json_path).json(None)
            return NOTHING_FOUND
        candidate, target = record.candidate, Target.from_json(record.target)
    model_options = read_options(cost_model_options, "--cost-model-option")
    learns, model_options = split_learn(cost_model, model_options)
    model = _model(cost_model, target, model_options, model_path)
    told = told if learns else []
    model.update([(each.candidate, each.outcome) for each in told])
    explanation = explain(model, candidate)
    output = Output(json_path)
    found = asdict(explanation, filter=lambda field, _: field.name != "candidate")
    output.json({"candidate": candidate.to_json(), "cost_model": cost_model, **found})
    where = f"{candidate.sketch.workload.name}, sketch {candidate.sketch.name!r}"
    output.say(f"{where}, by {cost_model!r} after {len(told)} outcomes")
    for table in explanation_tables(explanation, limit):
        output.say()
        output.table(table)
    if plot_path is not None:
        write_text(plot_path, explanation_svg(explanation, where))
    return OK


def _model(
    name: str, target: Target, options: dict[str, Any], path: str | None
) -> DifferentiableCostModel:
    from autotune.errors import InvalidValueError
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


def _from_database(
    database: str, record_id: str | None, options: dict[str, Any]
) -> tuple[Record | None, list[Record]]:
    """The record that is meant, and all of the same program under the same conditions."""
    from autotune.cli.output import notify
    from autotune.errors import InvalidValueError
    from autotune.store.database import RecordFilter

    with open_for_reading(database) as opened:
        query = Query.read(**options)
        if record_id is None:
            # A baseline has nothing that could be changed.
            record = min(query.fastest(opened), key=attrgetter("rank"), default=None)
        else:
            record = chosen_record(opened, query, record_id)
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


def _from_file(path: str, options: dict[str, Any]) -> tuple[Candidate, Target]:
    """The configuration in a file, of a sketch of the space that the options describe."""
    from autotune.cli.sketches import asked_space
    from autotune.errors import InvalidValueError, UnknownNameError
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
    space = asked_space(**options)
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
    return candidate, described_target(options["target"] or "cpu", options["threads"])

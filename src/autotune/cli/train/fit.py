"""``autotune train fit``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.destinations import InputFile, OutputFile
from autotune.cli.options import existing_database_option, json_option, read_options
from autotune.cli.query import MOST_THREADS, open_for_reading

if TYPE_CHECKING:
    from autotune.models.training import FoldScore, Trained
    from autotune.report import Table
    from autotune.store.records import Record
    from autotune.targets import Target

__all__ = ["fit"]

EPILOG = """\b
Examples:
  autotune train fit --cost-model gbdt --database cpu.db --output gbdt.npz
  autotune train fit --cost-model gbdt --database cpu.db --output gbdt.npz --hold-out 5
  autotune train fit --cost-model gbdt --database cpu.db --output gbdt.npz --hold-out softmax,dense
"""


@click.command("fit", epilog=EPILOG)
@click.option("--cost-model", default="gbdt", show_default=True, help="Which learned model.")
@click.option(
    "--cost-model-option",
    "cost_model_options",
    metavar="K=V",
    multiple=True,
    help="Option of the learned model; may be repeated.",
)
@existing_database_option
@click.option(
    "--target",
    type=InputFile(),
    help="cpu, a preset, or a JSON file; not needed where there is one.",
)
@click.option("--threads", type=int, help="Threads that the target runs programs on.")
@click.option(
    "--hold-out",
    metavar="FOLDS|TASK,...",
    help="Also evaluate it on unseen tasks: that many folds, or these tasks, which are "
    "left out of the file.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the training.")
@click.option(
    "--training-threads",
    type=click.IntRange(1, MOST_THREADS),
    default=1,
    show_default=True,
    help="Threads to train with.",
)
@click.option(
    "--output",
    required=True,
    metavar="FILE",
    type=OutputFile("model"),
    help="Write the model to this file, as npz.",
)
@json_option
def fit(
    cost_model: str,
    cost_model_options: tuple[str, ...],
    database: str,
    target: str | None,
    threads: int | None,
    hold_out: str | None,
    seed: int,
    training_threads: int,
    output: str,
    json_path: str | None,
) -> int:
    """Train a cost model on the records of a database, for tune --load-cost-model."""
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output
    from autotune.models import ModelContext
    from autotune.models.training import make_trainable, only_target, train, training_groups
    from autotune.plugins.parts import check_part
    from autotune.store.jsonl import replacing

    check_part("cost_model", cost_model)
    options = read_options(cost_model_options, "--cost-model-option")
    folds, held_out = _read_hold_out(hold_out)
    records = _records(database)
    groups = [group for group in training_groups(records) if group.is_informative]
    if not groups:
        click.echo(
            f"autotune: {database} has no valid record to learn from; no file is written",
            err=True,
        )
        return NOTHING_FOUND
    meant = only_target(records, _wanted(target, threads))
    groups = training_groups(
        record for record in records if record.key.target == meant.fingerprint
    )
    context = ModelContext(target=meant, seed=seed, threads=training_threads, options=options)
    with replacing(output) as stream:
        trained = train(
            lambda: make_trainable(cost_model, context),
            groups,
            folds=folds,
            held_out=held_out,
            seed=seed,
        )
        trained.model.save(stream)
    shown = Output(json_path)
    shown.json(_as_json(trained, cost_model, output, meant))
    if trained.scores:
        shown.table(_quality_table(trained.scores))
    tasks = len({group.workload for group in trained.groups})
    shown.say(f"{cost_model}, trained on {trained.rows} programs of {tasks} tasks, is in {output}")
    return OK


def _read_hold_out(text: str | None) -> tuple[int, list[str]]:
    """Read the number of folds, and the tasks that are held out."""
    if text is None:
        return 0, []
    if text.isdigit():
        return int(text), []
    return 0, [name.strip() for name in text.split(",")]


def _records(database: str) -> list[Record]:

    with open_for_reading(database) as opened:
        return list(opened.records())


def _wanted(target: str | None, threads: int | None) -> Target | None:
    from autotune.errors import InvalidValueError
    from autotune.tuning.options import described_target

    if target is None:
        if threads is not None:
            raise InvalidValueError("--threads is of a target: name it by --target")
        return None
    return described_target(target, threads)


def _as_json(trained: Trained, cost_model: str, output: str, target: Target) -> dict[str, Any]:
    return {
        "cost_model": cost_model,
        "file": output,
        "target": {
            "name": target.name,
            "cores": target.cores,
            "fingerprint": target.fingerprint,
        },
        "tasks": [group.name for group in trained.groups],
        "programs": trained.rows,
        "training": dict(trained.facts),
        "held_out": [{"tasks": list(it.names), **it.figures} for it in trained.scores],
    }


def _quality_table(scores: Sequence[FoldScore]) -> Table:
    from autotune.models.training import mean_figures
    from autotune.report import Table

    names = list(scores[0].figures)
    rows = [
        (f"{len(score.names)} tasks", *(f"{score.figures[name]:.3f}" for name in names))
        for score in scores
    ]
    if len(scores) > 1:
        means = mean_figures(scores)
        rows.append(("mean", *(f"{means[name]:.3f}" for name in names)))
    return Table("", ("judged by", *(f"{name}>" for name in names)), tuple(rows))

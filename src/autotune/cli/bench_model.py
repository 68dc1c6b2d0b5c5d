"""``autotune bench-model``."""

from __future__ import annotations

from typing import Any

import click

from autotune.cli.models import SOURCE_HELP, AskedModel, model_options
from autotune.cli.options import existing_database_option, json_option

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune bench-model --network mobilenet_v2
  autotune bench-model model.onnx --database records.db --only autotune,onnxruntime --json b.json
  autotune bench-model --network resnet_50 --target cuda --precision float16
"""


@click.command(
    "bench-model",
    epilog=EPILOG,
    help="Time a network as it is tuned in the database beside other runtimes that run it here: "
    "the same compiler untuned, torch, torch.compile, and on CPUs ONNX Runtime and OpenVINO. Each "
    "is in a process of its own, and they take turns; their outputs are compared.\n\n"
    + SOURCE_HELP,
)
@model_options(check=False)
@existing_database_option
@click.option(
    "--target",
    metavar="NAME",
    default="cpu",
    show_default=True,
    help="Where: cpu, or a CUDA device of this machine: cuda, cuda:1, cuda-tf32.",
)
@click.option(
    "--threads", type=click.IntRange(min=1), help="Threads of each; by default all CPUs."
)
@click.option("--only", metavar="NAME,...", help="Only these runtimes.")
@click.option(
    "--turns", type=click.IntRange(1, 1000), default=5, show_default=True, help="Turns of each."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 600.0),
    default=1.0,
    show_default=True,
    help="How long a turn is.",
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
@json_option
def command(
    model: AskedModel,
    database: str,
    target: str,
    threads: int | None,
    only: str | None,
    turns: int,
    seconds: float,
    quiet: bool,
    json_path: str | None,
) -> int:
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output, notify
    from autotune.networks.bench import BenchOptions, bench_model
    from autotune.networks.bench.result import bench_table
    from autotune.tuning.options import checked_target

    output = Output(json_path)
    model.reading()  # refuses what is wrong of it before anything is started
    on_device = checked_target(target, None).kind == "cuda"
    asked: dict[str, Any] = {}
    if only is not None:
        asked["runtimes"] = tuple(name.strip() for name in only.split(","))
    options = BenchOptions(
        database=database,
        target=target,
        threads=None if on_device and threads is None else checked_target("cpu", threads).cores,
        precision=model.precision,
        turns=turns,
        seconds=seconds,
        frontend=model.frontend,
        passes=model.passes,
        dims=model.dims,
        inputs=model.inputs,
        **asked,
    )
    _check_database(database)
    sizes = model.own_sizes if model.is_own else None
    result = bench_model(model.text, options, sizes=sizes, say=_say_nothing if quiet else notify)
    output.json(result.to_json())
    if all(row.latency is None for row in result.rows):
        for row in result.rows:
            notify(f"autotune: {row.runtime}: {row.problem}")
        notify("autotune: error: nothing here runs this network")
        return NOTHING_FOUND
    output.table(bench_table(result))
    return OK


def _say_nothing(text: str) -> None:
    pass


def _check_database(path: str) -> None:
    """Refuse a database that a person has named and that cannot be read.

    Without the usual one, the network is timed as it is untuned.
    """
    from autotune.store.sqlite import open_database

    context = click.get_current_context()
    if context.get_parameter_source("database") != click.core.ParameterSource.DEFAULT:
        with open_database(path, read_only=True):
            pass

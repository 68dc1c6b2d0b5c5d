"""``autotune tune``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from autotune.cli.destinations import InputFile
from autotune.cli.options import (
    TUNING,
    TUNING_PARTS,
    json_option,
    progress_options,
    shape_option,
    tune_options,
    watched,
)
from autotune.cli.programs import (
    asked_program,
    imported_workload,
    importing_backend,
    named_workload,
    program_options,
)
from autotune.cli.task_lists import task_list_options, tune_listed
from autotune.errors import InvalidValueError

if TYPE_CHECKING:
    from autotune.backends import ProgramFile
    from autotune.cli.output import Output
    from autotune.cli.watching import Watching
    from autotune.ir.workloads import Workload
    from autotune.tuning.options import TuneOptions
    from autotune.tuning.result import Result

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune tune gemm --shape m=512,n=512,k=512 --trials 64 --json out.json
  autotune tune conv2d --shape h=14,w=14,ci=256,co=256,pad=1 --time 60 --database records.db
  autotune tune --mlir network.mlir --function attention
  autotune tune gemm --shape m=512,n=512,k=512 --backend tvm,mlir
  autotune tune --tasks quick_start.toml --json out.json

The same command resumes a run that was interrupted, and answers from the records a run that was
finished. `autotune workloads` lists workloads and their shapes, `autotune plugins` everything
that can be named here.
"""


@click.command("tune", epilog=EPILOG)
@click.argument("workload", required=False, type=InputFile(beside="importer"))
@shape_option
@click.option("--dtype", help="Element type; the workload's default if it is not given.")
@program_options
@click.option(
    "--importer",
    metavar="NAME",
    help="WORKLOAD is a program, such as a file, that this plugin's importer reads.",
)
@task_list_options(required=False)
@tune_options(*TUNING, "backend", "observers", parts=TUNING_PARTS)
@click.option(
    "--vendor",
    is_flag=True,
    help="Also time the vendor library, where it has a routine for the workload: numpy's BLAS, or "
    "torch, if it is installed, on CUDA devices and for what BLAS lacks.",
)
@progress_options
@json_option
@watched
def command(
    workload: str | None,
    shape: tuple[str, ...],
    dtype: str | None,
    mlir_path: str | None,
    function: str | None,
    importer: str | None,
    task_list: str | None,
    only: tuple[str, ...],
    vendor: bool,
    watching: Watching,
    json_path: str | None,
    options: TuneOptions,
) -> int:
    """Find a fast schedule for WORKLOAD, the program in a file, or every task of a list."""
    # Imported here: the group imports this module to show its help.
    from attrs import evolve

    from autotune.cli.app import INTERRUPTED
    from autotune.cli.output import Output, notify_interrupted
    from autotune.process.interrupts import TuningInterrupted
    from autotune.tuning.api import run_tasks

    if task_list is not None:
        return tune_listed(task_list, only, watching, json_path)
    if only:
        raise InvalidValueError("--only needs the list that the task is of: --tasks LIST")
    program: ProgramFile | None = None
    made: object
    if importer is not None:
        made = imported_workload(importer, workload, shape, dtype, function)
    else:
        program = asked_program(workload, shape, dtype, mlir_path, function)
        made = program or _named(workload, shape, dtype)
    backend = options.backend
    if program is not None and not backend:
        backend = (importing_backend(program),)
    output = Output(json_path, watching.log_path)
    try:
        with watching.listeners() as listeners:
            asked = evolve(options, backend=backend, listeners=listeners)
            (result,) = run_tasks([made], asked)
    except TuningInterrupted as interrupted:
        notify_interrupted(interrupted, options.fresh)
        return INTERRUPTED
    return _report(result, output, vendor)


def _named(workload: str | None, shape: tuple[str, ...], dtype: str | None) -> Workload:
    """The workload of this name and shape."""
    if workload is None:
        raise InvalidValueError(
            "Missing argument 'WORKLOAD', a file, --mlir FILE, or a list, --tasks LIST"
        )
    return named_workload(workload, shape, dtype)


def _report(result: Result, output: Output, vendor: bool) -> int:
    """Show and write a result; returns the exit status."""
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import notify
    from autotune.report import comparison_table

    if vendor:
        from autotune.cli.vendor import time_vendor

        timing = time_vendor(result)
        output.json({**result.to_json(), "vendor": timing.to_json() if timing else None})
        table = comparison_table(
            result,
            timing.outcome if timing else None,
            timing.name if timing else "",
            timing.caveat if timing else "",
        )
    else:
        output.json(result.to_json())
        table = comparison_table(result)
    output.table(table)
    if result.best is None:
        notify(f"autotune: error: {result.failure_text()}")
        return NOTHING_FOUND
    return OK

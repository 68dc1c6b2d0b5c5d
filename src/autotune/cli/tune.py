"""``autotune tune``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, frozen

from autotune.cli.app import INTERRUPTED, NOTHING_FOUND, OK
from autotune.cli.arguments import command_of, nested, option
from autotune.cli.options import TUNING, TUNING_PARTS, tuning, watching_option
from autotune.cli.output import Output, notify, notify_interrupted
from autotune.cli.programs import DTYPE_HELP, AskedProgram, importing_backend
from autotune.cli.task_lists import only_option, tasks_option, tune_listed
from autotune.errors import InvalidValueError

if TYPE_CHECKING:
    from autotune.cli.watching import Watching
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


@frozen
class _Asked:
    program: AskedProgram = nested(AskedProgram, texts={"dtype": DTYPE_HELP})
    importer: str | None = option(
        "--importer NAME",
        "WORKLOAD is a program, such as a file, that this plugin's importer reads.",
    )
    task_list: str | None = tasks_option()
    only: tuple[str, ...] = only_option()
    options: TuneOptions = tuning(*TUNING, "backend", "observers", parts=TUNING_PARTS)
    vendor: bool = option(
        "--vendor",
        "Also time the vendor library, where it has a routine for the workload: numpy's BLAS, or "
        "torch, if it is installed, on CUDA devices and for what BLAS lacks.",
    )
    watching: Watching = watching_option()

    def made(self) -> tuple[object, tuple[str, ...]]:
        """Return what is tuned, and the backends that tune it."""
        if self.importer is not None:
            return self.program.imported(self.importer), self.options.backend
        program = self.program.file()
        if program is not None:
            return program, self.options.backend or (importing_backend(program),)
        missing = "Missing argument 'WORKLOAD', a file, --mlir FILE, or a list, --tasks LIST"
        return self.program.named(missing), self.options.backend


@command_of("tune", _Asked, EPILOG)
def command(asked: _Asked, output: Output) -> int:
    """Find a fast schedule for WORKLOAD, the program in a file, or every task of a list."""
    from autotune.process.interrupts import TuningInterrupted
    from autotune.tuning.api import run_tasks

    if asked.task_list is not None:
        return tune_listed(asked.task_list, asked.only, asked.watching, output)
    if asked.only:
        raise InvalidValueError("--only needs the list that the task is of: --tasks LIST")
    made, backend = asked.made()
    try:
        with asked.watching.listeners() as listeners:
            options = evolve(asked.options, backend=backend, listeners=listeners)
            (result,) = run_tasks([made], options)
    except TuningInterrupted as interrupted:
        notify_interrupted(interrupted, asked.options.fresh)
        return INTERRUPTED
    return _report(result, output, asked.vendor)


def _report(result: Result, output: Output, vendor: bool) -> int:
    """Show and write a result; returns the exit status."""
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

"""Tasks of the row `operators` on one operator, each in a process of its own.

    python operator_task.py describe '{row}' --program FILE
    python operator_task.py tune --program FILE --folder FOLDER --threads N --trials N

``describe`` writes TVM's program in TVM's JSON form, and prints its ``inputs`` and ``outputs``.
``tune`` prints what our tuner made of it: ``refused`` says why it made nothing. It leaves the
records and the program that schedules are replayed on in the folder.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from support.operator_rows import Row

RECORDS, IMPORTED = "records.db", "imported.json"


def main() -> int:
    """Answer; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("describe", "tune"))
    parser.add_argument("row", nargs="?", type=lambda text: Row(**json.loads(text)))
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    answer = describe(options) if options.what == "describe" else tune(options)
    print(json.dumps(answer))
    return 0


def describe(options: argparse.Namespace) -> dict[str, Any]:
    """Make the program; its arrays, of which the last one is its output."""
    from autotune_tvm import runtime

    runtime.load()
    from autotune_tvm.importer import text_of
    from tvm import IRModule

    from support.operator_programs import program_of

    function = program_of(options.row)
    options.program.write_text(text_of(IRModule({"main": function})), encoding="utf-8")
    arrays = [
        {"shape": [int(extent) for extent in parameter.shape], "dtype": str(parameter.dtype)}
        for parameter in function.params
    ]
    for position, below in options.row.bounds.items():
        arrays[position]["below"] = below
    return {"inputs": arrays[:-1], "outputs": arrays[-1:]}


def tune(options: argparse.Namespace) -> dict[str, Any]:
    """Tune the program; a refusal is an answer."""
    from autotune_tvm import runtime

    import autotune
    from autotune.errors import AutotuneError

    runtime.load()
    from autotune_tvm.importer import module_from_text

    module = module_from_text(options.program.read_text(encoding="utf-8"))
    try:
        result = autotune.tune(
            module,
            trials=options.trials,
            threads=options.threads,
            database=options.folder / RECORDS,
            parts={"strategy": "evolutionary"},
            seed=options.seed,
        )
        record = result.require_best()
    except AutotuneError as error:
        return {"refused": str(error).splitlines()[0]}
    (options.folder / IMPORTED).write_text(result.program or "", encoding="utf-8")
    return {
        "refused": None,
        "digest": result.workload.digest,
        "trials": result.trials,
        "outcomes": dict(result.outcomes),
        "seconds": dict(result.seconds),
        "latency": record.latency,
    }


if __name__ == "__main__":
    sys.exit(main())

"""Run benchmarks, each of which is a row: a module of this folder.

    python benchmarks/bench.py
    python benchmarks/bench.py ROW... [--quick] [--check] [--json FILE] [--torch-python PATH]

Without a row, all are listed. One row takes the options that ``bench.py ROW --help`` shows. Each
of several runs in a process of its own, so that none is timed beside what another left behind;
they take the options above, and ``--json`` names a folder. The status is that of the worst row.

A row has ``run``, which is given the options and returns what was measured, and may have
``options_of``, which adds options to the parser that it is given and parses the arguments.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.common import HERE, Report, basic_parser, finish_with, machine

ERROR, INTERRUPTED = 2, 130


def main(arguments: Sequence[str]) -> int:
    """Run rows, or list them; returns the exit status."""
    known = rows()
    count = next((at for at, it in enumerate(arguments) if it.startswith("-")), len(arguments))
    asked, options = arguments[:count], arguments[count:]
    if unknown := [name for name in asked if name not in known]:
        print(f"error: no row {unknown[0]!r}; rows: {', '.join(known)}", file=sys.stderr)
        return ERROR
    if len(asked) == 1:
        return run_row(asked[0], known[asked[0]], options)
    if asked:
        return run_rows(asked, options)
    shared_parser("bench.py ROW...", "Run benchmarks.").parse_args(options)
    for name, question in known.items():
        print(f"{name:16} {question}")
    return 0


def rows() -> Mapping[str, str]:
    """The first line of what each row says of itself."""
    files = (it for it in sorted(HERE.glob("*.py")) if it != Path(__file__).resolve())
    documented = {it.stem: ast.get_docstring(ast.parse(it.read_text())) for it in files}
    return {name: (said or "").partition("\n")[0] for name, said in documented.items()}


def shared_parser(program: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options of every row."""
    parser = basic_parser(description)
    parser.prog = program
    parser.add_argument(
        "--torch-python",
        type=_interpreter,
        default=sys.executable,
        metavar="PATH",
        help="interpreter with torch, for rows with torch beside them",
    )
    return parser


def _interpreter(path: str) -> str:
    # Now, and not after hours.
    if not Path(path).exists():
        raise argparse.ArgumentTypeError(f"there is no {path}")
    return path


def run_row(name: str, question: str, arguments: Sequence[str]) -> int:
    """Run one row in this process; returns the exit status."""
    from autotune.errors import AutotuneError

    row = importlib.import_module(name)
    parser = shared_parser(f"bench.py {name}", question)
    try:
        if hasattr(row, "options_of"):
            options = row.options_of(parser, arguments)
        else:
            options = parser.parse_args(arguments)
        here = machine()
        print("{processor}, {cores} cores, load {load:.1f}".format(**here), flush=True)
        report: Report | None = row.run(options)
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        print("\ninterrupted: a row that keeps its steps goes on from here", flush=True)
        return INTERRUPTED
    if report is None:
        return 0
    status = finish_with(options, {"machine": here, **report.data}, report.bars)
    return status if report.status is None else report.status


def run_rows(names: Sequence[str], arguments: Sequence[str]) -> int:
    """Run each row in a process of its own; returns the largest exit status."""
    options = shared_parser("bench.py ROW...", "Run benchmarks.").parse_args(arguments)
    status = 0
    for name in names:
        print(f"\n== {name}", flush=True)
        command = [sys.executable, __file__, name, "--torch-python", options.torch_python]
        command += [flag for flag in ("--quick", "--check") if getattr(options, flag[2:])]
        if options.json is not None:
            options.json.mkdir(parents=True, exist_ok=True)
            command += ["--json", str(options.json / f"{name}.json")]
        status = max(status, abs(subprocess.run(command, check=False).returncode))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

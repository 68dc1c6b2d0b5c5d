"""``autotune records convert``: recorded spaces from one format to another."""

from __future__ import annotations

import click

from autotune.cli.destinations import InputFile, OutputFile
from autotune.cli.options import json_option

__all__ = ["convert"]

EPILOG = """\b
Examples:
  autotune records convert gemm-A100.json.gz gemm-A100.t4.json.gz
  autotune records convert gemm-A100.t4.json gemm-A100.json --parameters gemm.t1.json
  autotune records convert gemm-A100.json gemm.t1.json
"""


@click.command("convert", epilog=EPILOG)
@click.argument("source", metavar="SPACE", type=InputFile())
@click.argument("path", metavar="FILE", type=OutputFile("space"))
@click.option(
    "--parameters",
    "described_by",
    metavar="FILE",
    type=InputFile(),
    help="A T1 file with the parameters and constraints of the space, which are checked.",
)
@json_option
def convert(source: str, path: str, described_by: str | None, json_path: str | None) -> int:
    """Write the recorded space in SPACE to FILE, in the format that its name ends in.

    SPACE is a cache of Kernel Tuner or a T4 file; FILE ends in .json (a cache), .t4.json, or
    .t1.json for the parameters and constraints alone. Either may end in .gz, too.
    """
    from autotune.cli.app import OK
    from autotune.cli.output import Output
    from autotune.errors import InvalidValueError
    from autotune.evaluation.replay.formats import (
        format_of,
        read_description,
        read_space,
        space_bytes,
    )
    from autotune.store.jsonl import replacing

    if path == "-":
        raise InvalidValueError("FILE '-' has no format: name a file, whose name ends in one")
    kind = format_of(path)
    description = None if described_by is None else read_description(described_by)
    space = read_space(source, description)
    data = space_bytes(space, description, path)
    with replacing(path) as stream:
        stream.write(data)
    output = Output(json_path)
    output.json(
        {
            "file": path,
            "format": kind,
            "kernel": space.kernel,
            "device": space.device,
            "parameters": len(space.parameters),
            "configurations": len(space),
        }
    )
    output.say(f"{len(space)} configurations of {space.kernel} written to {path}")
    return OK

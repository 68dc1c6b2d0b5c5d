"""The entry points that this distribution declares, installed for another process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"

_GROUPS = ("tvm.backends", "torch_dynamo_backends")


def declared() -> dict[str, dict[str, str]]:
    """Objects by name, for each group other than autotune's own."""
    found: dict[str, dict[str, str]] = {}
    group = ""
    for line in PROJECT.read_text().splitlines():
        if line.startswith("["):
            group = line.strip("[]").removeprefix("project.entry-points.").strip('"')
        elif group in _GROUPS and " = " in line:
            name, _, value = line.partition(" = ")
            found.setdefault(group, {})[name] = value.strip('"')
    return found


@contextmanager
def installed_as_declared(folder: Path) -> Iterator[dict[str, str]]:
    """An environment in which these entry points are found, whatever is installed."""
    info = folder / "declared-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: declared\nVersion: 0\n")
    lines = []
    for group, entries in declared().items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    yield {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}

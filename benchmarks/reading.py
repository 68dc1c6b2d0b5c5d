"""Reading models: what it takes from a model to the tasks of its network.

For each network of the package, processor seconds of the frontend ``graph``: the reader and all
passes, while nothing is kept of earlier runs and then with what the first time kept. A module
comes as torch has exported it, which is timed beside it; a file is that module as torch writes it
in ONNX. Every model is read in a process of its own that has imported torch, onnx and what reads
them before. ``--quick`` reads the networks that have bars. Needs torch and onnx.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.bars import Bar
from support.common import Report, bench, environment

# Processor seconds beyond torch's export, or this share of what that takes.
BEYOND_EXPORT, SHARE_OF_EXPORT = 3.0, 0.5
# Processor seconds from an ONNX file.
FROM_FILE = 2.0
WITH_BARS = ("mobilenet_v2", "bert_base", "resnet_50")
OPSET = 17
THREADS = 1


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser.add_argument("--child", nargs=2, metavar=("NETWORK", "FILE"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> Report | None:
    """Read networks in processes that are this program, each of which reads one."""
    if options.child:
        print(json.dumps(read_in_this_process(*options.child)))
        return None
    import autotune_zoo as zoo

    found: dict[str, dict[str, Any]] = {}
    for name in WITH_BARS if options.quick else zoo.names():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = read_network(name, Path(folder))
        print_row(name, found[name])
    return Report({"networks": found}, bars(found))


def read_network(name: str, folder: Path) -> dict[str, Any]:
    """Seconds from the module, and from its file: by ``"torch"`` and ``"onnx"``."""
    file = folder / f"{name}.onnx"
    return {
        "torch": child(name, file, folder / "cache of torch"),
        "onnx": child("", file, folder / "cache of onnx"),
    }


def child(name: str, file: Path, cache: Path) -> dict[str, Any]:
    """Answer of a new process, whose cache is empty; ``"error"`` where it failed."""
    command = [*bench("reading"), "--child", name, str(file)]
    inherited = {**environment(threads=THREADS), "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(command, env=inherited, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        return {"error": lines[-1]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def read_in_this_process(name: str, file: str) -> dict[str, Any]:
    """Seconds of a network from its module, which is then written to the file, or from that."""
    import onnx  # noqa: F401 - imported before anything is timed

    from autotune.networks.readers.onnx import source  # noqa: F401
    from autotune.networks.readers.torch.source import torch_source  # noqa: F401

    if not name:
        return read_twice(Path(file))
    import autotune_zoo as zoo
    import torch

    module, inputs = zoo.create(name)
    begin = processor_seconds()
    exported = torch.export.export(module, tuple(inputs))
    seconds = processor_seconds() - begin
    found = {"export": seconds, **read_twice(exported)}
    torch.onnx.export(module, tuple(inputs), file, opset_version=OPSET, dynamo=False)
    return found


def read_twice(model: object) -> dict[str, Any]:
    """Seconds of reading a model, first with nothing kept, then with what that kept."""
    from autotune.networks.frontend import LoadOptions
    from autotune.networks.graph_frontend import GraphFrontend
    from autotune.targets import detect_cpu

    options = LoadOptions(detect_cpu().with_cores(THREADS), THREADS)
    frontend = GraphFrontend()
    network, first = timed(lambda: frontend.load(model, None, options))
    _, again = timed(lambda: frontend.load(model, None, options))
    passes = {it.name: it.seconds for it in network.passes}
    calls = sum(it.occurrences for it in network.tasks)
    return {
        "seconds": first,
        "kept": again,
        "passes": passes,
        "tasks": len(network.tasks),
        "calls": calls,
    }


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a function, and processor seconds of this process."""
    begin = processor_seconds()
    found = run()
    return found, processor_seconds() - begin


def processor_seconds() -> float:
    """Processor seconds of this process so far."""
    times = os.times()
    return times.user + times.system


def print_row(name: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    """A line for each source of a network."""
    for source, row in found.items():
        if "error" in row:
            print(f"{name:<14} {source:<6} {row['error']}", flush=True)
            continue
        export = f", torch's export {row['export']:.2f} s" if "export" in row else ""
        slowest = sorted(row["passes"].items(), key=lambda it: -it[1])[:3]
        text = ", ".join(f"{key} {seconds:.2f}" for key, seconds in slowest)
        print(
            f"{name:<14} {source:<6} {row['seconds']:5.2f} s, {row['kept']:5.2f} s with what was "
            f"kept{export}; {row['calls']} calls of {row['tasks']} tasks; passes: {text}",
            flush=True,
        )


def bars(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Sequence[Bar]:
    """Promises of the networks that have bars."""
    made = []
    for name in WITH_BARS:
        module, file = found[name]["torch"], found[name]["onnx"]
        most = max(BEYOND_EXPORT, SHARE_OF_EXPORT * module.get("export", 0.0))
        for text, row, wanted in (
            ("processor seconds beyond torch's export", module, most),
            ("processor seconds from an ONNX file", file, FROM_FILE),
        ):
            note = row.get("error", "")
            made.append(
                Bar(f"{name}, {text}", row.get("seconds"), wanted, at_most=True, note=note)
            )
    return made


if __name__ == "__main__":
    from bench import main

    sys.exit(main(["reading", *sys.argv[1:]]))

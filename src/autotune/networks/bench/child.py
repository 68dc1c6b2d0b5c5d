"""The process of one runtime: prepares a network, and times it when asked to."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from attrs import evolve

from autotune.networks.api import ModelOptions
from autotune.networks.bench.runtimes import RUNTIMES, Prepared
from autotune.networks.fixed_inputs import read_asked
from autotune.networks.loading import read_passes
from autotune.networks.source import Source, in_precision, read_network, read_source, with_inputs
from autotune.process import Message
from autotune.process.child import connect, serve
from autotune.process.error_codec import refusing
from autotune.runtime.arrays import read_array, write_array
from autotune.tuning.options import TuneOptions

__all__: list[str] = []

_MODULE = "autotune.networks.bench.child"
_MOST_CALLS = 100_000
_BATCH_SECONDS, _LARGEST_BATCH = 0.1, 100
_CALLED = 11
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class Child:
    """Holds the network between messages."""

    def __init__(self) -> None:
        self._prepared: Prepared | None = None
        self._batch = 1

    def prepare(self, question: Message) -> Message:
        """Read and prepare the network, call it first, and write its outputs."""
        begin = time.perf_counter()
        source = _source(question)
        inputs = question["inputs"]
        if inputs and source.example_inputs is None:
            baked = {name: read_array(path) for name, path in question["baked"].items()}
            source = evolve(source, example_inputs=tuple(map(read_array, inputs)), baked=baked)
        reading = ModelOptions(
            frontend=question["frontend"], passes=read_passes(question["passes"])
        )
        options = TuneOptions(
            database=question["database"],
            target=question["target"],
            threads=question["threads"],
        )
        module, _, function = RUNTIMES[question["runtime"]].factory.partition(":")
        prepared = getattr(import_module(module), function)(source, options, reading)
        ready = time.perf_counter()
        outputs = prepared.outputs()
        first = time.perf_counter() - ready
        self._prepared = prepared
        # On a device the first call loads what is called.
        taken = first
        if prepared.on_device and prepared.seconds is not None:
            taken = prepared.seconds(1)[0]
        self._batch = max(1, min(_LARGEST_BATCH, int(_BATCH_SECONDS / taken)))
        folder = Path(question["folder"])
        return {
            "version": prepared.version,
            "ready": ready - begin,
            "first_call": first,
            "outputs": _write(outputs, folder / "output"),
            "inputs": _write(prepared.inputs, folder / "input"),
            "baked": {
                name: write_array(f"{folder / 'baked'}-{number}", value)
                for number, (name, value) in enumerate(prepared.baked.items())
            },
            "remarks": list(prepared.remarks),
        }

    def time(self, question: Message) -> Message:
        """Time calls for so many seconds: the median and the fastest."""
        prepared = self._prepared
        assert prepared is not None  # the host asks in this order
        samples: list[float] = []
        end = time.perf_counter() + question["seconds"]
        while time.perf_counter() < end and len(samples) < _MOST_CALLS:
            samples += _timed(prepared, self._batch)
        called = None
        if prepared.on_device:
            called = statistics.median(_called(prepared) for _ in range(_CALLED))
        return {
            "median": statistics.median(samples),
            "fastest": min(samples),
            "calls": len(samples),
            "called": called,
            "peak_bytes": _peak_bytes(),
        }

    def reference(self, question: Message) -> Message:
        """Outputs of the model as it was before it was converted to half precision."""
        source = _source(question)
        assert source.wide is not None and source.example_inputs is not None
        outputs = source.wide(list(filter(_is_array, _leaves(source.example_inputs))))
        return {"outputs": _write(outputs, Path(question["folder"]) / "output")}


def _source(question: Message) -> Source:
    asked = read_asked(question["dims"], question["asked"])
    if question["network"]:
        read = read_network(question["source"], question["sizes"])
    else:
        read = read_source(question["source"], question["frontend"])
    return in_precision(with_inputs(read, asked), question["precision"])


def _timed(prepared: Prepared, calls: int) -> list[float]:
    if prepared.seconds is not None:
        return list(prepared.seconds(calls))
    return [_called(prepared)]


def _called(prepared: Prepared) -> float:
    """Seconds of a call as a person makes it."""
    begin = time.perf_counter()
    prepared.run()
    return time.perf_counter() - begin


def _leaves(inputs: Any) -> list[Any]:
    found: list[Any] = import_module("torch").utils._pytree.tree_leaves(inputs)
    return found


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape")


def _write(arrays: Iterable[Any], stem: Path) -> list[str]:
    return [write_array(f"{stem}-{number}", array) for number, array in enumerate(arrays)]


def _peak_bytes() -> int:
    """The most memory that this process has had, in bytes; 0 where that is unknown."""
    found = _PEAK.search(Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def main() -> None:
    """Run a worker; started by ``WorkerProcess`` only."""
    connection, _ = connect(_MODULE)
    child = Child()
    handlers = {"prepare": child.prepare, "time": child.time, "reference": child.reference}
    serve(connection, {name: refusing(handler) for name, handler in handlers.items()})

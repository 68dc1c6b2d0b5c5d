"""The process in which MLIR reads a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotune.process import Message
from autotune.process.child import connect, serve
from autotune.process.error_codec import refusing
from autotune_mlir.importing.reading import read_text
from autotune_mlir.knobs import knobs_of
from autotune_mlir.networks.module_reading import answer

__all__ = ["HANDLERS", "main"]


def _read(message: Message) -> Message:
    workload, program = read_text(message["text"], message["file"], message["function"])
    return {"workload": workload.to_json(), "program": program}


def _read_knobs(message: Message) -> Message:
    parameters, constraints = knobs_of(message["text"])
    described = [
        {"name": it.name, "values": list(it.values), "default": it.default} for it in parameters
    ]
    return {"parameters": described, "constraints": constraints}


HANDLERS: Mapping[str, Callable[[Message], Message]] = {
    "read": _read,
    "read_module": answer,
    "read_knobs": _read_knobs,
}
"""Functions that answer questions, by kind."""


def main() -> None:
    """Serve one host; started by ``WorkerProcess`` only."""
    connection, _ = connect("autotune_mlir.importing.import_worker")
    serve(connection, {name: refusing(handler) for name, handler in HANDLERS.items()})

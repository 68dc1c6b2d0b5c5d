"""The process in which MLIR reads a program."""

from __future__ import annotations

from autotune.process import Message
from autotune.process.child import connect, serve
from autotune.process.error_codec import refusing
from autotune_mlir.networks.module_reading import answer
from autotune_mlir.reading import read_text

__all__ = ["main"]


def _read(message: Message) -> Message:
    workload, program = read_text(message["text"], message["file"], message["function"])
    return {"workload": workload.to_json(), "program": program}


def main() -> None:
    """Serve one host; started by ``WorkerProcess`` only."""
    connection, _ = connect("autotune_mlir.import_worker")
    serve(connection, {"read": refusing(_read), "read_module": refusing(answer)})


if __name__ == "__main__":
    main()

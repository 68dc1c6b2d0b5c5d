"""The process in which MLIR reads a program."""

from __future__ import annotations

from autotune.errors import AutotuneError
from autotune.process import Message
from autotune.process.child import connect, serve
from autotune.process.error_codec import error_to_json
from autotune_mlir.reading import read_text

__all__ = ["main"]


def _read(message: Message) -> Message:
    try:
        workload, program = read_text(message["text"], message["file"], message["function"])
    except AutotuneError as error:
        return {"refused": error_to_json(error)}
    return {"workload": workload.to_json(), "program": program}


def main() -> None:
    """Serve one host; started by ``WorkerProcess`` only."""
    connection, _ = connect("autotune_mlir.import_worker")
    serve(connection, {"read": _read})


if __name__ == "__main__":
    main()

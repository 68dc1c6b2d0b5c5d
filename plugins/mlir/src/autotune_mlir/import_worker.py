"""The process in which MLIR reads a program."""

from __future__ import annotations

from autotune.process import Message
from autotune.process.child import connect, serve
from autotune.process.error_codec import refusing
from autotune_mlir.networks.module_reading import function_facts, read_module
from autotune_mlir.reading import read_text

__all__ = ["main"]


def _read(message: Message) -> Message:
    workload, program = read_text(message["text"], message["file"], message["function"])
    return {"workload": workload.to_json(), "program": program}


def _read_module(message: Message) -> Message:
    """The module, and facts on each of its functions or, where asked, on one."""
    text, file, only = message["text"], message["file"], message["function"]
    if only is not None:
        return {"facts": [function_facts(text, file, only)]}
    answer = read_module(text, file)
    if message["facts"]:
        answer["facts"] = [function_facts(text, file, name) for name in answer["functions"]]
    return answer


def main() -> None:
    """Serve one host; started by ``WorkerProcess`` only."""
    connection, _ = connect("autotune_mlir.import_worker")
    serve(connection, {"read": refusing(_read), "read_module": refusing(_read_module)})


if __name__ == "__main__":
    main()

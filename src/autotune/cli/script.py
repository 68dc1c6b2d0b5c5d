"""A record's program in its compiler's language, made in a process that may die of it.

Compilers parse the text of programs, which others may have written, and may crash on it.
"""

from __future__ import annotations

from autotune.errors import InvalidValueError
from autotune.process import Message, WorkerDied, ask_once
from autotune.store.records import Record

__all__ = ["recorded_script"]

SECONDS = 120.0
"""How long a compiler may take, its import included."""


def recorded_script(record: Record, backend: str | None) -> str:
    """The scheduled program of a record as its backend shows it.

    Args:
        record: The record.
        backend: As of :func:`autotune.plugins.parts.recorded_part`.

    Raises:
        InvalidValueError: the backend refuses it, dies of it or does not end.
        UnknownNameError: no plugin registers the backend.
    """
    from autotune.plugins.parts import recorded_part

    recorded_part("backend", record.key.backend, backend)
    name = f"{record.run_id}/{record.trial}"
    question = {"op": "show", "record": record.to_json(), "backend": backend}
    try:
        answer = ask_once("autotune.cli.script", question, record.key.threads, SECONDS)
    except (TimeoutError, WorkerDied) as error:
        raise InvalidValueError(f"record {name} has no script: the compiler: {error}") from error
    if "failed" in answer:
        raise InvalidValueError(f"record {name} has no script: {answer['failed']}")
    return str(answer["done"]["text"])


def _show(question: Message) -> Message:
    from autotune.backends import Backend, BuildRequest
    from autotune.plugins.parts import recorded_part
    from autotune.targets import Target

    record = Record.from_json(question["record"])
    backend: Backend = recorded_part("backend", record.key.backend, question["backend"])
    workload = record.candidate.sketch.workload
    target = Target.from_json(record.target)
    request = BuildRequest(workload, record.program, record.candidate, target, record.key.threads)
    return {"text": backend.show(request)}


if __name__ == "__main__":
    from autotune.process.child import connect, serve

    connection, _ = connect("autotune.cli.script")
    serve(connection, {"show": _show})

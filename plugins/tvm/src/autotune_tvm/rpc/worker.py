"""The process that holds the session with one RPC server: ``python -m autotune_tvm.rpc.worker``.

It serves the messages of :mod:`autotune.measure.worker` and runs what they name on the server. It
can be ended at any time: the server ends the session when its time is over.
"""

from __future__ import annotations

from autotune.measure.worker import Worker
from autotune.process.channel import Message
from autotune.process.child import Connection, Handler, connect, serve
from autotune_tvm import runtime
from autotune_tvm.rpc.backend import RPCBackend
from autotune_tvm.rpc.machine import ask_machine
from autotune_tvm.rpc.session import Session

__all__ = ["MODULE", "RPCWorker"]

MODULE = "autotune_tvm.rpc.worker"


class RPCWorker(Worker):
    """Does what one host asks for on one server.

    Args:
        backend: Import string of :class:`~autotune_tvm.rpc.backend.RPCBackend`.
        connection: Where phases are announced.
    """

    def __init__(self, backend: str, connection: Connection) -> None:
        super().__init__(backend, connection)
        self._host = connection

    @property
    def handlers(self) -> dict[str, Handler]:
        """As of a local worker; the greeting and the speed are those of the server."""
        inherited = super().handlers

        def hello(message: Message) -> Message:
            return {**inherited["hello"](message), **self._greet()}

        return {**inherited, "hello": hello, "speed": self._server_speed}

    def _greet(self) -> Message:
        """Get a server, and ask what machine it is."""
        with self._host.phase("start"):
            runtime.load()
            self._session.ensure(0.0)
            return {"machine": ask_machine(self._session).to_json()}

    def _server_speed(self, _message: Message) -> Message:
        """Time the reference program on the server."""
        with self._host.phase("run"):
            self._session.ensure(0.0)
            return {"seconds": ask_machine(self._session).reference_seconds}

    @property
    def _session(self) -> Session:
        backend = self.backend
        if not isinstance(backend, RPCBackend):
            raise RuntimeError("a job came before hello")
        return backend.session


def main() -> None:
    """Run a worker; started by the runner ``rpc`` only."""
    connection, options = connect(MODULE, ["backend"])
    serve(connection, RPCWorker(options["backend"], connection).handlers)


if __name__ == "__main__":
    main()

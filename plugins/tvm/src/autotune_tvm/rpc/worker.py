"""The process that holds the session with one RPC server.

It serves the messages of :mod:`autotune.measure.worker` and runs what they name on the server. It
can be ended at any time: the server ends the session when its time is over.
"""

from __future__ import annotations

from attrs import evolve

from autotune.measure.engines import same_speed
from autotune.measure.worker import Worker
from autotune.process.channel import Message
from autotune.process.child import Connection, Handler, connect, serve
from autotune_tvm.rpc.backend import ServedBackend
from autotune_tvm.rpc.machine import RemoteMachine, ask_machine, use_threads
from autotune_tvm.rpc.session import OtherMachine, Session

_SPEED_ATTEMPTS = 4

__all__ = ["MODULE", "RPCWorker"]

MODULE = "autotune_tvm.rpc.worker"


class RPCWorker(Worker):
    """Does what one host asks for on one server.

    Args:
        backend: Import string of :class:`~autotune_tvm.rpc.backend.ServedBackend`.
        connection: Where phases are announced.
    """

    def __init__(self, backend: str, connection: Connection) -> None:
        super().__init__(backend, connection)
        self._host = connection
        self._machine: RemoteMachine | None = None
        self._threads = 1

    @property
    def handlers(self) -> dict[str, Handler]:
        """Return the handlers of a local worker, with the greeting and the speed of the server."""
        inherited = super().handlers

        def hello(message: Message) -> Message:
            return {**inherited["hello"](message), **self._greet(message)}

        return {**inherited, "hello": hello, "speed": self._server_speed}

    def _greet(self, message: Message) -> Message:
        """Get a server, and say what machine it is.

        Args:
            message: ``threads`` of programs, and what it has to be like (``expected``) if it
                takes the place of another one, or None.
        """
        expected = message["expected"]
        self._threads = int(message["threads"])
        if expected is not None:
            self._machine = RemoteMachine.from_json(expected)
        with self._host.phase("start"):
            self._session.accept = self._accept
            self._session.ensure(0.0)
        if self._machine is None:
            raise RuntimeError("a session was opened, and its server not asked")
        return {"machine": self._machine.to_json()}

    def _accept(self, session: Session) -> None:
        """Ask a new session's server what machine it is; all of this process are equal.

        Raises:
            OtherMachine: it is not like that of the first one.
        """
        use_threads(session, self._threads)
        found = ask_machine(session)
        first = self._machine
        if first is not None:
            different = found.differences(first)
            for _ in range(_SPEED_ATTEMPTS):
                if different or same_speed(found.reference_seconds, first.reference_seconds):
                    break
                found = ask_machine(session)
            else:
                different = [
                    f"reference program takes {found.reference_seconds:.3g} s, not "
                    f"{first.reference_seconds:.3g} s"
                ]
            if different:
                raise OtherMachine(
                    f"no other RPC server with key {session.options.key!r} is like "
                    f"{first.server}: {found.server} has {'; '.join(different)}"
                )
        self._machine = found

    def _server_speed(self, _message: Message) -> Message:
        """Time the reference program on the server."""
        with self._host.phase("run"):
            self._session.ensure(0.0)
            found = ask_machine(self._session)
            if self._machine is not None:
                least = min(found.reference_seconds, self._machine.reference_seconds)
                self._machine = evolve(self._machine, reference_seconds=least)
            return {"seconds": found.reference_seconds}

    @property
    def _session(self) -> Session:
        backend = self.backend
        if not isinstance(backend, ServedBackend):
            raise RuntimeError("a job came before hello")
        return backend.session


def main() -> None:
    """Run a worker; started by the runner ``rpc`` only."""
    connection, options = connect(MODULE, ["backend"])
    serve(connection, RPCWorker(options["backend"], connection).handlers)

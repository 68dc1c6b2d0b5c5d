"""Process of Ray: a supervisor, and the messages in and out of it.

Ray restarts it never and repeats no call: a candidate that ends a process must not be run again
silently.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time

from autotune.measure.engines.supervisor import Supervisor, SupervisorSetup

__all__ = ["RayActor"]

# How often it says that it is there, and how long it waits for a host that asks for nothing.
_HEARTBEAT_SECONDS = 1.0
_ABANDONED_SECONDS = 600.0


class RayActor:
    """The supervisor of one machine, as an actor.

    Args:
        setup: JSON form of its :class:`SupervisorSetup`.
    """

    def __init__(self, setup: str) -> None:
        # Ray has its processes give way to all others of the machine, which would be timed, too.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        self._asked = time.monotonic()
        self._news: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._supervisor = Supervisor(SupervisorSetup(**json.loads(setup)), self._wake)
        threading.Thread(target=self._end_when_abandoned, daemon=True).start()

    async def accept(self, command: bytes, *contents: bytes) -> None:
        """See :meth:`Supervisor.accept`."""
        self._supervisor.accept(command, *contents)

    async def events(self) -> bytes:
        """See :meth:`Supervisor.take`; waits for something to happen, but not for long."""
        self._asked = time.monotonic()
        if self._news is None:
            self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        if not self._supervisor.has_news:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), _HEARTBEAT_SECONDS)
        self._news.clear()
        return self._supervisor.take()

    def _wake(self) -> None:
        if self._loop is not None and self._news is not None:
            self._loop.call_soon_threadsafe(self._news.set)

    def _end_when_abandoned(self) -> None:
        """End the process when no host asks any more, as one that was cut off from the cluster."""
        while time.monotonic() - self._asked < _ABANDONED_SECONDS:
            time.sleep(_HEARTBEAT_SECONDS)
        os._exit(0)

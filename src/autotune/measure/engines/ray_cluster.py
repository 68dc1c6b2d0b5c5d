"""Nodes of a Ray cluster, and supervisors on them as actors."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from attrs import define, field

from autotune.errors import InvalidValueError
from autotune.measure.engines.ray_actor import RayActor
from autotune.measure.engines.supervised import Node, SupervisorSetup
from autotune.measure.engines.supervised.cluster import OnEvent
from autotune.process.errors import WorkerStartFailed

__all__ = ["RayCluster", "check_address"]

_LOOK_SECONDS, _STALE_SECONDS = 1.0, 60.0
_REACH_SECONDS = 5.0
_AUTO = "auto"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ACCELERATOR = "accelerator_type:"


def check_address(address: str) -> str:
    """An address that Ray can be given.

    Raises:
        InvalidValueError: it is neither ``auto`` nor ``HOST:PORT``.
    """
    host, _, port = address.rpartition(":")
    is_pair = bool(host) and "/" not in host and port.isdigit() and 0 < int(port) < 1 << 16
    if address != _AUTO and not is_pair:
        raise InvalidValueError(
            f"the address of a Ray cluster is {_AUTO!r}, for one that runs on this machine, or "
            f"HOST:PORT of its head, such as '127.0.0.1:6379', not {address!r}"
        )
    return address


@define(eq=False)
class _Handle:
    """An actor."""

    ray: Any
    actor: Any
    is_over: bool = False

    def send(self, command: bytes, contents: Sequence[object]) -> None:
        # What it answers is nothing; that it has ended is told by its events.
        self.actor.accept.remote(command, *contents)

    def kill(self) -> None:
        self.is_over = True
        self.ray.kill(self.actor, no_restart=True)

    def listen(self, on_event: OnEvent) -> None:
        """Ask for the next event, again and again; on a thread of Ray's after the first time."""

        def done(future: Any) -> None:
            try:
                data = future.result()
            except Exception as error:  # the actor has ended, whatever Ray calls it
                on_event(b"", _reason(error))
                return
            on_event(data, "")
            if not self.is_over:
                self.listen(on_event)

        try:
            self.actor.events.remote().future().add_done_callback(done)
        except Exception as error:  # Ray has been shut down meanwhile
            on_event(b"", _reason(error))


def _reason(error: Exception) -> str:
    """Why an actor has ended, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "cause" in line.lower() or "Error" in line]
    return (causes or lines or [type(error).__name__])[-1]


@define(eq=False)
class _Nodes:
    """What the cluster says of its nodes, asked by a thread: the question may take long."""

    ray: Any
    found: list[Node] = field(factory=list)
    seen: float = 0.0
    error: str = ""
    is_over: threading.Event = field(factory=threading.Event)

    def watch(self) -> None:
        """Ask until it is over."""
        while not self.is_over.wait(_LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Ask once."""
        try:
            self.found = [_node(it) for it in self.ray.nodes() if it["Alive"]]
            self.seen = time.monotonic()
        except Exception as error:  # the head is not to be reached now
            self.error = _reason(error)


def _node(facts: dict[str, Any]) -> Node:
    resources = facts["Resources"]
    models = [name[len(_ACCELERATOR) :] for name in resources if name.startswith(_ACCELERATOR)]
    return Node(
        f"{facts['NodeManagerHostname']}/{facts['NodeID'][:8]}",
        int(resources.get("CPU", 0)),
        int(resources.get("GPU", 0)),
        models[0] if models else "",
    )


class RayCluster:
    """A Ray cluster that runs already. None is started here.

    Args:
        address: ``auto`` or ``HOST:PORT``.
    """

    name = "ray"

    def __init__(self, address: str = _AUTO) -> None:
        self._address = check_address(address)
        self._ray: Any = None
        self._is_ours = False
        self._nodes: _Nodes | None = None

    def connect(self) -> None:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        host = self._address.rpartition(":")[0].strip("[]")
        if host in _LOOPBACK:
            # Otherwise Ray takes this for the address of the network.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        try:
            import ray
        except ImportError as error:
            raise WorkerStartFailed(
                "runner 'ray' needs Ray, which is not installed: "
                f"pip install 'tensor-autotune[ray]' ({error})"
            ) from error
        if host:
            self._reach(host)
        self._ray, self._is_ours = ray, not ray.is_initialized()
        try:
            if self._is_ours:
                ray.init(address=self._address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # Ray has many; all of them mean the same here
            raise WorkerStartFailed(
                f"there is no Ray cluster at {self._address!r} that can be joined: "
                f"{_reason(error)}; start one with `ray start --head "
                "--node-ip-address=127.0.0.1`, or name another one with --ray-address HOST:PORT"
            ) from error
        self._nodes = _Nodes(ray)
        self._nodes.look()
        threading.Thread(target=self._nodes.watch, name="ray nodes", daemon=True).start()

    def _reach(self, host: str) -> None:
        """Ray waits for minutes where nothing listens."""
        port = int(self._address.rpartition(":")[2])
        try:
            socket.create_connection((host, port), _REACH_SECONDS).close()
        except OSError as error:
            raise WorkerStartFailed(
                f"no Ray cluster answers at {self._address!r} (--ray-address): {error}"
            ) from error

    def nodes(self) -> Sequence[Node]:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""
        watched = self._nodes
        if watched is None:
            return []
        if time.monotonic() - watched.seen > _STALE_SECONDS:
            raise WorkerStartFailed(
                f"the head of the Ray cluster has said nothing for {_STALE_SECONDS:g} s: "
                f"{watched.error}; the run can be resumed when it is back"
            )
        return watched.found

    def supervise(
        self, node: Node, setup: SupervisorSetup, cpus: int, gpus: int, on_event: OnEvent
    ) -> _Handle:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ids = {it["NodeID"][:8]: it["NodeID"] for it in self._ray.nodes()}
        where = NodeAffinitySchedulingStrategy(ids[node.name.rpartition("/")[2]], soft=False)
        actor = self._ray.remote(RayActor).options(
            num_cpus=cpus,
            num_gpus=gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=where,
        )
        handle = _Handle(self._ray, actor.remote(json.dumps(setup.to_json())))
        handle.listen(on_event)
        return handle

    def put(self, content: bytes) -> object:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""
        return self._ray.put(content)

    def close(self) -> None:
        """See :class:`~autotune.measure.engines.supervised.Cluster`."""
        if self._nodes is not None:
            self._nodes.is_over.set()
            self._nodes = None
        if self._is_ours and self._ray is not None:
            self._ray.shutdown()
        self._is_ours = False

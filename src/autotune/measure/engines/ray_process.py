"""The process that is a driver of a Ray cluster, for a host that must outlive the cluster.

Ray ends a process that uses it where the cluster's head, or what Ray has running on the same
machine, is gone. The host talks to this one as to a worker; bytes in between are not looked into.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from attrs import define, field

from autotune.measure.engines.supervisor import RayActor
from autotune.process.channel import ATTACHMENTS, Message
from autotune.process.child import Connection, connect

__all__ = ["main"]

_LOOK_SECONDS = 1.0
_LAST_WORDS_SECONDS = 1.0
_ACCELERATOR = "accelerator_type:"


def main() -> None:
    """Join the cluster, and do what the host says until it closes its end."""
    connection, options = connect(__name__, ("address", "temporary"))
    # Where Ray keeps what it knows of clusters on this machine.
    os.environ["TMPDIR"] = options["temporary"]
    _Session(connection).serve(options["address"])


@define(eq=False)
class _Actor:
    """A supervisor's actor, which is asked for events again and again, on threads of Ray's."""

    ray: Any
    actor: Any
    say: Callable[[bytes, str], None]
    is_over: bool = False

    def listen(self) -> None:
        """Ask for the next event."""
        try:
            self.actor.events.remote().future().add_done_callback(self._heard)
        except Exception as error:  # Ray is being shut down
            self.say(b"", _reason(error))

    def _heard(self, future: Any) -> None:
        try:
            data = future.result()
        except Exception as error:  # the actor has ended, whatever Ray calls it
            self.say(b"", _reason(error))
            return
        self.say(data, "")
        if not self.is_over:
            self.listen()

    def kill(self) -> None:
        """End it with what it has started."""
        self.is_over = True
        self.ray.kill(self.actor, no_restart=True)


@define(eq=False)
class _Session:
    """Everything that the host has in the cluster.

    Attributes:
        connection: To the host.
        actors: By the host's numbers.
        contents: What was put into Ray's store, by the host's numbers.
        pieces: Of contents that have not arrived as a whole.
        ids: Of nodes, by how they begin.
    """

    connection: Connection
    ray: Any = None
    actors: dict[int, _Actor] = field(factory=dict)
    contents: dict[int, Any] = field(factory=dict)
    pieces: dict[int, list[bytes]] = field(factory=dict)
    ids: dict[str, str] = field(factory=dict)
    news: SimpleQueue[Message] = field(factory=SimpleQueue)

    def serve(self, address: str) -> None:
        """Join, and do what is asked."""
        try:
            import ray

            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            self.ray = ray
            self._look()
        except Exception as error:  # Ray has many; all of them mean the same here
            self.connection.send({"failed": _reason(error)})
            os._exit(1)
        for task in (self._watch, self._send):
            threading.Thread(target=task, daemon=True).start()
        handlers = {
            "supervise": self._supervise,
            "put": self._put,
            "send": self._pass_on,
            "kill": self._kill,
        }
        for message in self.connection.messages():
            if message["do"] == "leave":
                break
            for number in message["dropped"]:
                self.contents.pop(number, None)
            try:
                handlers[message["do"]](message)
            except Exception as error:  # such as that Ray's store is full
                self.news.put({"failed": _reason(error)})
                time.sleep(_LAST_WORDS_SECONDS)
                os._exit(1)
        for actor in self.actors.values():
            actor.kill()
        self.ray.shutdown()
        os._exit(0)

    def _supervise(self, message: Message) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        number = message["actor"]
        where = NodeAffinitySchedulingStrategy(self.ids[message["node"]], soft=False)
        actor = self.ray.remote(RayActor).options(
            num_cpus=message["cpus"],
            num_gpus=message["gpus"],
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=where,
        )
        made = actor.remote(json.dumps(message["setup"]))
        self.actors[number] = _Actor(self.ray, made, partial(self._say, number))
        self.actors[number].listen()

    def _put(self, message: Message) -> None:
        number = message["content"]
        self.pieces.setdefault(number, []).extend(message[ATTACHMENTS])
        if message["is_last"]:
            self.contents[number] = self.ray.put(b"".join(self.pieces.pop(number)))

    def _pass_on(self, message: Message) -> None:
        [command] = message[ATTACHMENTS]
        if message["actor"] in self.actors:
            # What it answers is nothing; that it has ended is told by its events.
            those = [self.contents[number] for number in message["contents"]]
            self.actors[message["actor"]].actor.accept.remote(command, *those)

    def _kill(self, message: Message) -> None:
        actor = self.actors.pop(message["actor"], None)
        if actor is not None:
            actor.kill()

    def _say(self, number: int, data: bytes, end: str) -> None:
        self.news.put({"done": {"actor": number, "end": end}, ATTACHMENTS: [data]})

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            try:
                self._look()
            except Exception as error:  # the head is not to be reached now
                self.news.put({"done": {"unreachable": _reason(error)}})

    def _look(self) -> None:
        """Say which nodes there are."""
        alive = [it for it in self.ray.nodes() if it["Alive"]]
        # One that has left since may be asked for still.
        self.ids |= {it["NodeID"][:8]: it["NodeID"] for it in alive}
        self.news.put({"done": {"nodes": [_node(it) for it in alive]}})

    def _send(self) -> None:
        # On a thread: nothing else here waits for a host that is slow to read.
        while True:
            message = self.news.get()
            try:
                self.connection.send(message)
            except OSError:  # the host is gone, and this process is about to be
                os._exit(0)


def _node(facts: dict[str, Any]) -> Message:
    resources = facts["Resources"]
    models = [name[len(_ACCELERATOR) :] for name in resources if name.startswith(_ACCELERATOR)]
    return {
        "name": f"{facts['NodeManagerHostname']}/{facts['NodeID'][:8]}",
        "cpus": int(resources.get("CPU", 0)),
        "gpus": int(resources.get("GPU", 0)),
        "gpu_model": models[0] if models else "",
    }


def _reason(error: Exception) -> str:
    """Say why something of Ray has ended, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "cause" in line.lower() or "Error" in line]
    return (causes or lines or [type(error).__name__])[-1]

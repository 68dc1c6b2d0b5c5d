"""A Ray cluster whose messages come twice, or late, or from machines unlike the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from autotune.measure.engines.ray_engine import RayCluster
from autotune.measure.engines.supervised import Node, OnEvent, Supervised
from autotune.measure.engines.supervisor import SupervisorSetup


class FaultyRayCluster(RayCluster):
    """A cluster that does what a test asks for.

    Attributes:
        doubles: Whether all that machines say arrives twice.
        held: Names of nodes that are not heard until they are given up; then all comes at once.
        strangers: Whether nodes that join measure by another protocol.
    """

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.doubles = False
        self.held: set[str] = set()
        self.strangers = False

    def supervise(
        self, node: Node, setup: SupervisorSetup, cpus: int, gpus: int, on_event: OnEvent
    ) -> Supervised:
        waiting: list[tuple[bytes, str]] = []

        def hear(data: bytes, end: str) -> None:
            if node.name in self.held:
                waiting.append((data, end))
                return
            for _ in range(1 + self.doubles):
                on_event(data, end)

        setup = evolve(setup, protocol="another") if self.strangers else setup
        handle = super().supervise(node, setup, cpus, gpus, hear)

        def late() -> None:
            for data, end in waiting:
                on_event(data, end)

        return _Handle(handle, late)


class _Handle:
    def __init__(self, handle: Supervised, on_kill: Callable[[], None]) -> None:
        self._handle, self._on_kill = handle, on_kill

    def send(self, command: bytes, contents: Any) -> None:
        self._handle.send(command, contents)

    def kill(self) -> None:
        self._handle.kill()
        self._on_kill()

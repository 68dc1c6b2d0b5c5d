"""What the tasks of a built network take, from inferences of which some are interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from autotune_tvm.networks import executable
from autotune_tvm.networks.frontend import RelaxFrontend
from relax_networks import network, op

from autotune.networks import LoadOptions
from autotune.targets import Target


class Machine:
    """A virtual machine whose inferences call each task once."""

    def __init__(self, tasks: list[str]) -> None:
        self.tasks, self.inferences = tasks, 0
        self.watch: Callable[..., int] = lambda *_: 0

    def set_instrument(self, watch: Callable[..., int]) -> None:
        self.watch = watch

    def __getitem__(self, name: str) -> Callable[..., None]:
        return self.run

    def run(self, *arguments: object) -> None:
        self.inferences += 1
        for task in self.tasks:
            self.watch(None, task, True, None)
            self.watch(None, task, False, None)


def readings(seconds: list[float]) -> Iterator[float]:
    """A clock between whose readings, two by two, so many seconds pass; then they repeat."""
    now = 0.0
    for number in range(1000):
        yield now
        now += seconds[min(number, len(seconds) - 1)]
        yield now


@pytest.mark.parametrize(
    ("seconds", "wanted", "inferences"),
    [
        # The first inference, which maps memory, and an interrupted one do not count.
        ([0.9, 0.01, 0.01, 0.2, 0.01, 0.01, 0.2], 0.01, 7),
        ([0.5, 0.4], 0.4, 2),
        ([2.0, 9.0], 2.0, 1),
        ([1e-4], 1e-4, 26),
    ],
)
def test_a_task_counts_as_in_the_median_inference(
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
    seconds: list[float],
    wanted: float,
    inferences: int,
) -> None:
    module = network([((4, 4), "float32")], lambda emit, x: emit(op.nn.relu(x)))
    program = RelaxFrontend().load(module, None, LoadOptions(target, 1))
    compiled: Any = program.build({}, target, 1)
    (task,) = (it.name for it in program.tasks)
    given = [np.ones((4, 4), np.float32)]
    assert compiled.profile(given)[task] > 0
    machine, clock = Machine([task]), readings(seconds)
    monkeypatch.setattr(compiled, "_new_machine", lambda: machine)
    monkeypatch.setattr(executable, "perf_counter", lambda: next(clock))
    assert compiled.profile(given) == {task: pytest.approx(wanted)}
    assert machine.inferences == inferences

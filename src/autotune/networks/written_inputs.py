"""Networks that write some of their inputs, or what they hold, as models do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from autotune.errors import InvalidValueError
from autotune.networks.arrays import as_numpy
from autotune.networks.frontend import CompiledNetwork, NetworkProgram

__all__ = ["WritingNetwork", "copied_inputs", "with_written"]


class WritingNetwork(CompiledNetwork):
    """A network whose first outputs are written into inputs or kept, and the others returned.

    Calls of one that keeps some wait for each other.

    Args:
        network: What computes them; it changes no input itself, and takes the state behind the
            others.
        program: What it was made from.
    """

    def __init__(self, network: CompiledNetwork, program: NetworkProgram) -> None:
        names = [tensor.name for tensor in program.inputs]
        self._network = network
        self._names = program.writes
        self._begins = program.state
        self._writes = {name: names.index(name) for name in program.writes if name in names}
        self._state = dict(self._begins)
        self._lock, self._process = Lock(), os.getpid()

    @property
    def lacks(self) -> str:
        """As of what computes the outputs."""
        return self._network.lacks

    @property
    def state(self) -> dict[str, Any]:
        """Copies of what it keeps."""
        return {name: np.array(as_numpy(it)) for name, it in self._state.items()}

    def reset(self) -> None:
        """Begin again with the state of the model."""
        with self._alone():
            self._state = dict(self._begins)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once, write inputs in place, and keep the state.

        Raises:
            InvalidValueError: an input is missing, or of another shape or type, or one that is
                written cannot be.
        """
        written = [(name, at) for name, at in self._writes.items() if at < len(inputs)]
        for name, at in written:
            _check_writeable(name, inputs[at])
        with self._alone():
            found = self._network(*inputs, *self._state.values())
            new = dict(zip(self._names, found, strict=False))
            self._state = {name: new[name] for name in self._state}
        for name, at in written:
            _write(inputs[at], new[name])
        return tuple(found[len(self._names) :])

    def _alone(self) -> AbstractContextManager[Any]:
        """Lock that holds up other calls, where there is a state."""
        if not self._state:
            return nullcontext()
        if self._process != os.getpid():
            # The thread that had it is not in a forked child.
            self._lock, self._process = Lock(), os.getpid()
        return self._lock

    def save(self, path: Path | str) -> tuple[str, ...]:
        """Write what runs elsewhere: there the new values of written inputs are outputs."""
        lines = self._network.save(path)
        state = () if self._network.saves_state else tuple(self._begins)
        if state:
            names = ", ".join(map(repr, state))
            lines = (*lines, f"{path}: its last inputs are {names}, which the model holds")
        if self._writes or state:
            names = ", ".join(repr(it) for it in self._names if it in self._writes or it in state)
            said = f"the new values of {names}, which the model writes, are its first outputs"
            lines = (*lines, f"{path}: {said}")
        return lines

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Seconds of each of ``repeats`` calls, which leave inputs and state as they are."""
        return self._network.time_calls([*inputs, *self._state.values()], repeats)

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Seconds of all calls of each task in one inference, by name of the task."""
        return self._network.profile([*inputs, *self._state.values()])


def copied_inputs(inputs: Sequence[Any], writes: Sequence[str]) -> list[Any]:
    """Inputs that a network may write without changing those that are given."""
    return [np.array(as_numpy(value)) for value in inputs] if writes else list(inputs)


def with_written(
    program: NetworkProgram,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    compiled: CompiledNetwork,
) -> list[Any]:
    """The values of written inputs and of the state after a call, and what it returned."""
    by_name = {it.name: value for it, value in zip(program.inputs, inputs, strict=True)}
    if program.state:
        by_name |= compiled.state
    return [*(by_name[name] for name in program.writes), *outputs]


def _check_writeable(name: str, value: Any) -> None:
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            return
        problem = "is read-only"
    elif hasattr(value, "copy_"):
        if not getattr(value, "requires_grad", False):
            return
        problem = "requires a gradient"
    else:
        problem = f"is of type {type(value).__name__}"
    raise InvalidValueError(
        f"input {name!r} {problem}, and the network writes it as its model does: give a numpy "
        "array that can be written, or a tensor of torch without a gradient"
    )


def _write(value: Any, new: Any) -> None:
    if isinstance(value, np.ndarray):
        value[...] = as_numpy(new)
    else:
        value.copy_(new)

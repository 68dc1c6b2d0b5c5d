"""Networks that write some of their inputs, as models do that compute in place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import InvalidValueError
from autotune.networks.arrays import as_numpy
from autotune.networks.frontend import CompiledNetwork, NetworkTensor

__all__ = ["WritingNetwork", "copied_inputs", "with_written"]


class WritingNetwork(CompiledNetwork):
    """A network whose first outputs are written into inputs, and the others returned.

    Args:
        network: What computes them; it changes no input itself.
        inputs: Of the network.
        writes: Names of the inputs that are written, in the order of those outputs.
    """

    def __init__(
        self, network: CompiledNetwork, inputs: Sequence[NetworkTensor], writes: Sequence[str]
    ) -> None:
        names = [tensor.name for tensor in inputs]
        self._network = network
        self._writes = {name: names.index(name) for name in writes}

    @property
    def lacks(self) -> str:
        """As of what computes the outputs."""
        return self._network.lacks

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once, and write inputs in place.

        Raises:
            InvalidValueError: an input is missing, or of another shape or type, or one that is
                written cannot be.
        """
        written = [(name, at) for name, at in self._writes.items() if at < len(inputs)]
        for name, at in written:
            _check_writeable(name, inputs[at])
        found = self._network(*inputs)
        for (_, at), value in zip(written, found, strict=False):
            _write(inputs[at], value)
        return tuple(found[len(self._writes) :])

    def save(self, path: Path | str) -> tuple[str, ...]:
        """Write what runs elsewhere: there the new values of written inputs are outputs."""
        names = ", ".join(map(repr, self._writes))
        remark = (
            f"{path}: the new values of {names}, which the model writes, are its first outputs"
        )
        return (*self._network.save(path), remark)

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Seconds of each of ``repeats`` calls, which leave the inputs as they are."""
        return self._network.time_calls(inputs, repeats)

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Seconds of all calls of each task in one inference, by name of the task."""
        return self._network.profile(inputs)


def copied_inputs(inputs: Sequence[Any], writes: Sequence[str]) -> list[Any]:
    """Inputs that a network may write without changing those that are given."""
    return [np.array(as_numpy(value)) for value in inputs] if writes else list(inputs)


def with_written(
    inputs: Sequence[Any],
    tensors: Sequence[NetworkTensor],
    writes: Sequence[str],
    outputs: Sequence[Any],
) -> list[Any]:
    """The values of written inputs after a call, and what it returned."""
    by_name = {tensor.name: value for tensor, value in zip(tensors, inputs, strict=True)}
    return [*(by_name[name] for name in writes), *outputs]


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

"""The interface of a network that runs, on whatever device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["CompiledNetwork"]


class CompiledNetwork(ABC):
    """A network that runs."""

    saves_state: bool = False
    """True if what :meth:`save` writes holds the model's state itself; else it has the state among
    its inputs and outputs."""

    @property
    def lacks(self) -> str:
        """Need that is not met here, in one line; "" where the network can be called.

        A network for a device may be built, and saved, where there is no such device.
        """
        return ""

    @property
    def state(self) -> dict[str, Any]:
        """Copies of what the network holds and writes in calls, by name; {} where it has none."""
        return {}

    def reset(self) -> None:  # noqa: B027
        """Set :attr:`state` to what it was before the first call."""

    @abstractmethod
    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once.

        Args:
            inputs: Numpy arrays, or anything with DLPack, of exactly the network's shapes and
                types. They are read where they lie, and are not changed, except for those that
                the model writes. What a model holds and writes
                is in :attr:`state`.

        Returns:
            The outputs, of the kind of the first input (numpy arrays where there is none).

        Raises:
            InvalidValueError: an input is missing, or of another shape or type.
        """

    @abstractmethod
    def save(self, path: Path | str) -> tuple[str, ...]:
        """Write what runs elsewhere: a file with the weights in it, or what others compile.

        Returns:
            What a person should know about the files, a line each; () where there is nothing.

        Raises:
            InvalidValueError: the file cannot be written.
        """

    @abstractmethod
    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Seconds of each of ``repeats`` calls, after one that is not counted."""

    @abstractmethod
    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Seconds of all calls of each task in one inference, by name of the task."""

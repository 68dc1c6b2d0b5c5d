"""The state of a numpy generator as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.errors import InvalidValueError


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """A JSON object for :func:`restore_generator`; any of numpy's bit generators will do."""
    state: dict[str, Any] = _plain(rng.bit_generator.state)
    return state


def restore_generator(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """Continue from what :func:`generator_state` returned.

    Raises:
        InvalidValueError: the state is of another bit generator.
    """
    own = rng.bit_generator.state["bit_generator"]
    if state.get("bit_generator") != own:
        raise InvalidValueError(
            f"the state is of generator {state.get('bit_generator')}, this one is {own}"
        )
    rng.bit_generator.state = _shaped(state, rng.bit_generator.state)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _shaped(value: Any, like: Any) -> Any:
    """``value`` with the array types of ``like``."""
    if isinstance(value, dict):
        return {key: _shaped(item, like[key]) for key, item in value.items()}
    return np.array(value, dtype=like.dtype) if isinstance(like, np.ndarray) else value

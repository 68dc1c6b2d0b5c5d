"""Checks of a cost model's saved state."""

from __future__ import annotations

from typing import Any

from autotune.errors import InvalidValueError


def check_model(name: str, state: dict[str, Any]) -> None:
    """Refuse the state of another model.

    Raises:
        InvalidValueError: ``state["model"]`` is not ``name``.
    """
    if state.get("model") != name:
        raise InvalidValueError(
            f"the state is of cost model {state.get('model')!r}, this one is {name!r}"
        )

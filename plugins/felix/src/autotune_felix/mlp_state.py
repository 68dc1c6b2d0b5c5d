"""Tell whether a saved state is one that a network of Felix's can continue from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.errors import InvalidValueError
from autotune.models.cost.model_state import check_model

__all__ = ["check_mlp_state"]


def check_mlp_state(name: str, state: Mapping[str, Any], version: str, file: str) -> None:
    """Refuse the state of another model, of other features, or one that continues from a file.

    Args:
        name: Name of the model.
        state: What was saved.
        version: Version of the model's features.
        file: What tells the weights of its file apart; "" without one.

    Raises:
        InvalidValueError: it is such a state.
    """
    check_model(name, dict(state))
    if state["feature_version"] != version or state["file"] != file:
        raise InvalidValueError(
            f"the state has features {state['feature_version']!r} and continues from the file "
            f"{state['file'] or 'none'}; here are {version!r} and {file or 'none'}"
        )

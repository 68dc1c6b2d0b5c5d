"""Which cost models have a gradient."""

from __future__ import annotations

from contextlib import suppress

from autotune.errors import PluginError
from autotune.models.cost import DifferentiableCostModel
from autotune.plugins.manager import manager

__all__ = ["differentiable_names"]


def differentiable_names() -> list[str]:
    """Registered cost models that have a gradient, as far as they can be imported."""
    found = []
    for name in manager().names("cost_model"):
        with suppress(PluginError):
            factory = manager().get("cost_model", name).resolve()
            if isinstance(factory, type) and issubclass(factory, DifferentiableCostModel):
                found.append(name)
    return found

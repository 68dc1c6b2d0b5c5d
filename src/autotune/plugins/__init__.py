"""Finding, checking, creating and describing parts."""

from autotune.plugins.context import Context
from autotune.plugins.spec import PluginSpec

__all__ = ["Context", "PluginSpec"]

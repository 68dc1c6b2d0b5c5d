"""Finding, checking, creating and describing parts."""

from autotune.plugins.spec import Context, PluginSpec

__all__ = ["Context", "PluginSpec"]

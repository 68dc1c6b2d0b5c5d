"""Finding a backend by name in any process."""

from __future__ import annotations

from autotune.backends import Backend
from autotune.errors import InvalidValueError
from autotune.plugins.hooks import PluginSpec


def find_backend(name: str) -> Backend:
    """A new backend: a registered one by name, or any by an import string ``module:Class``.

    Raises:
        UnknownNameError: no backend is registered under this name.
        PluginError: it cannot be imported.
        InvalidValueError: what was found is not a backend.
    """
    if ":" in name:
        backend = PluginSpec("imported", name, "by import string").resolve()()
    else:
        from autotune.plugins.manager import manager  # only where the installed plugins are wanted

        backend = manager().create("backend", name)
    if not isinstance(backend, Backend):
        raise InvalidValueError(f"{name!r} is a {type(backend).__name__}, not a backend")
    return backend

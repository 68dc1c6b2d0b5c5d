"""Finding an observer by name in any process."""

from __future__ import annotations

from autotune.errors import AutotuneError, InvalidValueError, PluginError
from autotune.measure.observers.observer import Observer
from autotune.plugins.hooks import PluginSpec

__all__ = ["find_observer"]


def find_observer(name: str) -> Observer:
    """A new observer: a registered one by name, or any by an import string ``module:Class``.

    Raises:
        UnknownNameError: no observer is registered under this name.
        PluginError: it cannot be imported, or fails while it is made.
        InvalidValueError: what was found is not an observer.
    """
    try:
        if ":" in name:
            found = PluginSpec("imported", name, "by import string").resolve()()
        else:
            from autotune.plugins.manager import (
                manager,  # only where the installed plugins are wanted
            )

            found = manager().create("observer", name)
    except AutotuneError:
        raise
    except Exception as error:  # a foreign part may raise anything
        raise PluginError(
            f"observer {name!r} failed while it was made: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Observer):
        raise InvalidValueError(f"{name!r} is a {type(found).__name__}, not an observer")
    return found

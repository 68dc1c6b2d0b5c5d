"""Creating a part by name, by import string, or taking it as it is."""

from __future__ import annotations

from typing import Any

from autotune.errors import AutotuneError, InvalidValueError, PluginError
from autotune.plugins.hooks import PluginSpec
from autotune.plugins.manager import manager

__all__ = ["check_part", "create_part"]


def check_part(kind: str, name: object) -> str:
    """Check that a part exists, importing nothing; returns its name.

    Args:
        kind: Kind of part, such as ``"strategy"``.
        name: A registered name, or ``"module:attribute"`` for a part that no plugin registers.

    Raises:
        UnknownNameError: no plugin registers it.
        InvalidValueError: it is not a name.
    """
    if not isinstance(name, str):
        raise InvalidValueError(f"{kind.replace('_', ' ')} must be a name, not {name!r}")
    if ":" not in name:
        manager().get(kind, name)
    return name


def create_part(kind: str, name: str, **arguments: Any) -> Any:
    """Create a part; see :func:`check_part` for ``name``.

    Raises:
        UnknownNameError: no plugin registers it.
        PluginError: it cannot be imported, or fails while it is made.
    """
    check_part(kind, name)
    try:
        if ":" in name:
            return PluginSpec(name, name, "by import string").resolve()(**arguments)
        return manager().create(kind, name, **arguments)
    except AutotuneError:
        raise
    except Exception as error:  # a foreign part may raise anything
        raise PluginError(
            f"{kind.replace('_', ' ')} {name!r} failed while it was made: "
            f"{type(error).__name__}: {error}"
        ) from error

"""Names of packages that are imported when they are first used, and parts of plugins by name.

What a package offers is listed once, in the stub beside it, for type checkers and for this. A
process that needs one name of a package does not wait for all the others.

Rooms before that of plugins know by name what plugins register; the package itself, which may
import every room, says who finds it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["find_parts_by", "names_of_stub", "plugin_part"]

_finders: list[Callable[[str, str], Any]] = []


def names_of_stub(package: str, file: str) -> tuple[list[str], Callable[[str], Any]]:
    """Names of a package, and the function that imports them.

    Args:
        package: Its name.
        file: Its ``__init__.py``, beside which is a stub with a line for each name, such as
            ``from module import name as name``.

    Returns:
        Its ``__all__`` and its ``__getattr__``.
    """
    lines = Path(file).with_suffix(".pyi").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line.startswith("from ")]
    module_of = {name: module for _, module, _, name, *_ in words}

    def imported(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(module_of[name])
        if not hasattr(module, name):
            importlib.import_module(f"{module_of[name]}.{name}")
        # A package that can be called is itself what its name stands for.
        value = sys.modules.get(f"{package}.{name}") or getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return list(module_of), imported


def find_parts_by(find: Callable[[str, str], Any]) -> None:
    """Sets the function of a kind and a name that :func:`plugin_part` asks."""
    _finders[:] = [find]


def plugin_part(kind: str, name: str) -> Any:
    """The part that a plugin registers under a name.

    Raises:
        UnknownNameError: nobody registers it; an import string is no name.
        PluginError: its plugin fails.
    """
    (find,) = _finders
    return find(kind, name)

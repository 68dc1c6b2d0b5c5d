"""Packages of others, imported when they are asked for."""

from __future__ import annotations

import importlib
from typing import Any

from autotune.errors import AutotuneError, InvalidValueError

__all__ = ["PackageMissing", "check_count", "load"]


class PackageMissing(AutotuneError):
    """A package that a hook adapts to is not installed, or is not as it was."""


def load(module: str, distribution: str, version: str) -> Any:
    """A module of another package.

    Args:
        module: Its dotted name.
        distribution: What pip calls the package.
        version: The version that the hook was written for.

    Raises:
        PackageMissing: it is not installed, or has no such module; says why.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PackageMissing(
            f"{module} cannot be imported ({error}): pip install {distribution}=={version}, for "
            "which this hook was written"
        ) from error


def check_count(name: str, count: object) -> None:
    """Refuse what is no whole number above 0.

    Raises:
        InvalidValueError: it is none.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidValueError(f"{name} is a whole number above 0, not {count!r}")

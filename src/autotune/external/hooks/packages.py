"""Packages of others, imported when they are asked for."""

from __future__ import annotations

import importlib
from typing import Any

from autotune.errors import AutotuneError

__all__ = ["PackageMissing", "load"]


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

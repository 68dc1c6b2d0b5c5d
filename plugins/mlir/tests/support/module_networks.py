"""Whole modules as networks, for tests."""

from __future__ import annotations

from autotune_mlir.networks.frontend import MLIRFrontend

from autotune.networks import GraphProgram, LoadOptions
from autotune.targets import detect_cpu

__all__ = ["load"]


def load(source: object, threads: int = 1) -> GraphProgram:
    """A module as a network for this machine."""
    network = MLIRFrontend().load(source, None, LoadOptions(detect_cpu(), threads))
    assert isinstance(network, GraphProgram)
    return network

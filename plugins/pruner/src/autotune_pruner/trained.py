"""Weights that the distribution brings, for ``--load-cost-model``. No torch is imported here."""

from __future__ import annotations

from pathlib import Path

from autotune.plugins import Context

__all__ = ["pacm_cpu"]


def pacm_cpu(_context: Context) -> Path:
    """The file of weights for ``pacm`` and ``moa-pacm``, trained on one core of a CPU."""
    return Path(__file__).parent / "data" / "pacm-cpu.npz"

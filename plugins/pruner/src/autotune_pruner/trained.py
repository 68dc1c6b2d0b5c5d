"""Weights that the distribution brings, for ``--load-cost-model``. No torch is imported here."""

from __future__ import annotations

from pathlib import Path

from autotune.plugins import Context

__all__ = ["pacm_cpu", "pacm_cuda"]

_DATA = Path(__file__).parent / "data"


def pacm_cpu(_context: Context) -> Path:
    """The file of weights for ``pacm`` and ``moa-pacm``, trained on one core of a CPU."""
    return _DATA / "pacm-cpu.npz"


def pacm_cuda(_context: Context) -> Path:
    """The file of weights for ``pacm`` and ``moa-pacm``, trained on kernels of one H100."""
    return _DATA / "pacm-cuda.npz"

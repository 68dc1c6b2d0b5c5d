"""The pipeline ``autotune`` of Relax; TVM calls :func:`register` when it is imported."""

from __future__ import annotations

from typing import Any

__all__ = ["PIPELINE", "register"]

PIPELINE = "autotune"
"""What ``relax.get_pipeline`` calls it."""


def register() -> None:
    """Make the pipeline known to Relax; doing so again changes nothing.

    Named by the entry point group ``tvm.backends``. Nothing of autotune is imported before the
    pipeline is asked for.
    """
    import tvm

    if tvm._RUNTIME_ONLY:
        return
    from tvm.relax import pipeline

    if PIPELINE not in pipeline.PIPELINE_MAP:
        pipeline.register_pipeline(PIPELINE)(_make)


def _make(**options: Any) -> Any:
    """See :func:`autotune_tvm.networks.apply_records.autotune_pipeline`."""
    from autotune_tvm.networks.apply_records import autotune_pipeline

    return autotune_pipeline(**options)

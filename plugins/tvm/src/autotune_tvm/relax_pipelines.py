"""The pipelines ``autotune`` of Relax and TIR; TVM calls :func:`register` when it is imported."""

from __future__ import annotations

from typing import Any

__all__ = ["PIPELINE", "register"]

PIPELINE = "autotune"
"""Name by which ``relax.get_pipeline`` and ``tvm.tirx.get_tir_pipeline`` find them."""


def register() -> None:
    """Make the pipelines known to TVM; doing so again changes nothing.

    Named by the entry point group ``tvm.backends``. Nothing of autotune is imported before a
    pipeline is asked for.
    """
    import tvm

    if tvm._RUNTIME_ONLY:
        return
    from tvm.relax import pipeline
    from tvm.tirx import compilation_pipeline

    if PIPELINE not in pipeline.PIPELINE_MAP:
        pipeline.register_pipeline(PIPELINE)(_make)
    if PIPELINE not in compilation_pipeline.PIPELINE_MAP:
        compilation_pipeline.register_tir_pipeline(PIPELINE, _lowering)


def _make(**options: Any) -> Any:
    """See :func:`autotune_tvm.networks.apply_records.autotune_pipeline`."""
    from autotune_tvm.networks.apply_records import autotune_pipeline

    return autotune_pipeline(**options)


def _lowering() -> tuple[Any, Any, Any]:
    """See :func:`autotune_tvm.compiler.tir_pipeline`."""
    from autotune_tvm.compiler import tir_pipeline

    return tir_pipeline()

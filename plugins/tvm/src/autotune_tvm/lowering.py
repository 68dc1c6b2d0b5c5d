"""TVM's passes from a scheduled program to what LLVM takes, with ten of our own among them."""

from __future__ import annotations

from typing import Any

__all__ = ["tir_pipeline"]


def tir_pipeline() -> tuple[Any, Any, Any]:
    """TVM's default pipeline in the form of its registry; functions on CPUs have no library calls.

    Returns:
        The passes over all functions (:func:`~autotune_tvm.passes.bfloat16_constants` and
        :func:`~autotune_tvm.passes.note_streams` are the first), what makes the last passes for
        the host's functions (:func:`~autotune_tvm.passes.round_to_bfloat16`,
        :func:`~autotune_tvm.passes.multiply_by_reciprocal`,
        :func:`~autotune_tvm.passes.expand_functions`,
        :func:`~autotune_tvm.passes.combine_lanes`,
        :func:`~autotune_tvm.passes.transpose_tiles`,
        :func:`~autotune_tvm.passes.stream_stores`,
        :func:`~autotune_tvm.passes.bound_loops` and
        :func:`~autotune_tvm.passes.request_tiles` go before TVM's), and the same for those of
        devices. Loops have become vectors by then, and halves the types that TVM computes in.
    """
    import tvm
    from tvm.tirx.compilation_pipeline import get_tir_pipeline

    from autotune_tvm.passes import (
        bfloat16_constants,
        bound_loops,
        combine_lanes,
        expand_functions,
        multiply_by_reciprocal,
        note_streams,
        request_tiles,
        round_to_bfloat16,
        stream_stores,
        transpose_tiles,
    )

    def expanded(module: Any, _: Any) -> Any:
        rounded = multiply_by_reciprocal(round_to_bfloat16(module))
        combined = transpose_tiles(combine_lanes(expand_functions(rounded)))
        return request_tiles(bound_loops(stream_stores(combined)))

    def with_bits(module: Any, _: Any) -> Any:
        return note_streams(bfloat16_constants(module))

    def finalize_host() -> Any:
        expand = tvm.transform.module_pass(expanded, opt_level=0, name="ExpandFunctions")
        return tvm.transform.Sequential([expand, finish()])

    pipeline, finish, finalize_device = get_tir_pipeline("default")
    constants = tvm.transform.module_pass(with_bits, opt_level=0, name="Bfloat16Constants")
    return tvm.transform.Sequential([constants, pipeline]), finalize_host, finalize_device

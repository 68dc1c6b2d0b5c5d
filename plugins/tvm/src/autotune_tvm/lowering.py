"""TVM's passes from a scheduled program to what LLVM takes, with ten of our own among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["PRINTED", "is_printed", "tir_pipeline"]

PRINTED = "autotune.printed"
"""Attribute of functions that are printed: most passes have nothing to do for them."""


def is_printed(function: Any) -> bool:
    """Whether a function is printed."""
    attributes = getattr(function, "attrs", None)
    return attributes is not None and PRINTED in attributes


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

    def expanded(module: Any) -> Any:
        rounded = multiply_by_reciprocal(round_to_bfloat16(module))
        combined = transpose_tiles(combine_lanes(expand_functions(rounded)))
        return request_tiles(bound_loops(stream_stores(combined)))

    def lowered(module: Any) -> Any:
        return pipeline(note_streams(bfloat16_constants(module)))

    def packed(module: Any) -> Any:
        calls = tvm.tirx.transform.MakePackedAPI()(module)
        return tvm.tirx.transform.BF16StorageLegalize()(calls)

    def lower(module: Any, _: Any) -> Any:
        return _apart(module, packed, lowered)

    def finalize_host() -> Any:
        def expand(module: Any, _: Any) -> Any:
            return _apart(module, request_tiles, expanded)

        made = tvm.transform.module_pass(expand, opt_level=0, name="ExpandFunctions")
        return tvm.transform.Sequential([made, finish()])

    pipeline, finish, finalize_device = get_tir_pipeline("default")
    made = tvm.transform.module_pass(lower, opt_level=0, name="Lower")
    return made, finalize_host, finalize_device


def _apart(module: Any, printed: Callable[[Any], Any], others: Callable[[Any], Any]) -> Any:
    """A module whose printed functions went through one pass, and all else through another."""
    from tvm.ir import IRModule

    own = {
        variable: function
        for variable, function in module.functions_items()
        if is_printed(function)
    }
    if not own:
        return others(module)
    rest = {
        variable: function
        for variable, function in module.functions_items()
        if not is_printed(function)
    }
    made = printed(IRModule(own, attrs=module.attrs))
    if rest:
        made.update(others(IRModule(rest, attrs=module.attrs)))
    return made

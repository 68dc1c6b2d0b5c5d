"""TVM's passes from a scheduled or printed program to what LLVM takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["PRINTED", "is_printed", "tir_pipeline"]

PRINTED = "autotune.printed"
"""Attribute of functions that are printed: most passes have nothing to do for them."""


def is_printed(function: Any) -> bool:
    """Return whether a function is printed."""
    attributes = getattr(function, "attrs", None)
    return attributes is not None and PRINTED in attributes


def tir_pipeline() -> tuple[Any, Any, Any]:
    """TVM's default pipeline in the form of its registry, which printed functions pass by.

    These have nothing to be lowered but their parameters. In all others conversions of bfloat16
    are made right by :func:`~autotune_tvm.passes.bfloat16_constants`, which comes first, and
    :func:`~autotune_tvm.passes.round_to_bfloat16`, which comes before TVM's last passes, as does
    :func:`~autotune_tvm.passes.expand_functions`: vectors call no library.

    Returns:
        The passes over all functions, what makes the last passes for the host's functions, and
        the same for those of devices.
    """
    import tvm
    from tvm.tirx.compilation_pipeline import get_tir_pipeline

    from autotune_tvm.passes import (
        bfloat16_constants,
        expand_functions,
        request_tiles,
        round_to_bfloat16,
    )

    def packed(module: Any) -> Any:
        for variable, function in module.functions_items():
            module[variable] = function.with_body(function.body.block.body)
        calls = tvm.tirx.transform.MakePackedAPI()(module)
        return tvm.tirx.transform.BF16StorageLegalize()(calls)

    def lower(module: Any, _: Any) -> Any:
        return _apart(module, packed, lambda others: pipeline(bfloat16_constants(others)))

    def expanded(module: Any) -> Any:
        return expand_functions(round_to_bfloat16(module))

    def finish(module: Any, _: Any) -> Any:
        return last(_apart(module, request_tiles, expanded))

    def finalize_host() -> Any:
        return tvm.transform.module_pass(finish, opt_level=0, name="Finish")

    pipeline, finalize, finalize_device = get_tir_pipeline("default")
    last = finalize()
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

"""From operators to compiled functions: TVM's own passes, named for the pipeline."""

from __future__ import annotations

from tvm import relax
from tvm.ir import IRModule
from tvm.ir.transform import Sequential

from autotune_tvm.networks.graph import ENTRY, bindings_of, operator_of, tensor_calls

__all__ = ["canonicalize", "fuse", "legalize", "views"]

passes = relax.transform


def canonicalize(module: IRModule) -> tuple[IRModule, str]:
    """One dataflow block without trivial bindings, equal expressions and dead code."""
    before = len(bindings_of(module[ENTRY]))
    changed = Sequential(
        [
            passes.ConvertToDataflow(),
            passes.CanonicalizeBindings(),
            passes.EliminateCommonSubexpr(),
            passes.DeadCodeElimination(),
        ]
    )(module)
    after = len(bindings_of(changed[ENTRY]))
    return changed, f"{before} bindings, {after} left" if after != before else ""


def legalize(module: IRModule) -> tuple[IRModule, str]:
    """Operators become calls of TIR functions; the target is the current one."""
    changed = Sequential([relax.backend.DispatchSortScan(), passes.LegalizeOps()])(module)
    rest = sorted(
        {operator_of(binding.value) for binding in bindings_of(changed[ENTRY])} - {"", "call_tir"}
    )
    note = f"{len(tensor_calls(changed))} calls"
    return changed, f"{note}; left to the virtual machine: {', '.join(rest)}" if rest else note


def fuse(module: IRModule) -> tuple[IRModule, str]:
    """Elementwise operators are computed where what they read is computed."""
    before = len(tensor_calls(module))
    changed = Sequential(
        [
            passes.AnnotateTIROpPattern(),
            passes.FuseOps(),
            passes.FuseTIR(),
            passes.DeadCodeElimination(),
        ]
    )(module)
    return changed, f"{before} calls, {len(tensor_calls(changed))} left"


def views(module: IRModule) -> tuple[IRModule, str]:
    """Calls that only give a tensor another shape become views, which cost nothing."""
    before = len(tensor_calls(module))
    changed = Sequential([passes.RewriteDataflowReshape(), passes.DeadCodeElimination()])(module)
    count = before - len(tensor_calls(changed))
    return changed, f"{count} calls" if count else ""

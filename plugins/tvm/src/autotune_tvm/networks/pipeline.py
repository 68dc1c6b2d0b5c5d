"""The passes of networks on a module of Relax."""

from __future__ import annotations

from tvm.ir import IRModule

from autotune.networks.passes import run_passes
from autotune.targets import Target
from autotune_tvm.networks.graph import ENTRY, output_tensors
from autotune_tvm.networks.reader import read_graph
from autotune_tvm.networks.writer import write_graph

__all__ = ["with_passes"]


def with_passes(module: IRModule, machine: Target) -> IRModule:
    """The module after the passes that ``tune-model`` runs; its tasks are functions of it.

    It is called as before: what it returns has the same form.

    Args:
        module: Has a function ``main``; that of the result returns tuples as it does.
        machine: What the network is for.

    Raises:
        UnsupportedWorkload: an operator has no form as a loop nest, or a tensor no fixed shape.
    """
    names = [tensor.name for tensor in output_tensors(module)]
    graph, _ = run_passes(read_graph(module, names), machine, machine.cores)
    return write_graph(graph, module[ENTRY].ret_ty)

"""Models of torch as graphs.

torch_network.py  :func:`read_torch`, without torch until it is called
program.py        modules and ``.pt2`` files as exported programs, their inputs and tensors
call.py           one call of an operator, and operands in the type in which torch computes
operators         what operators compute
reader.py         from nodes to values, those that torch says in terms of others, too
source.py         inputs of fixed shapes, a graph, and torch to compare it with
"""

from __future__ import annotations

from autotune.networks.readers.torch.torch_network import (
    TorchNetwork,
    check_program,
    read_torch,
)

__all__ = ["TorchNetwork", "check_program", "read_torch"]

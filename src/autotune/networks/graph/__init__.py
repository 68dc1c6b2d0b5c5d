"""Networks as graphs of workloads, the operations that build them, and their evaluator.

Operations take and return :class:`Value`; where all operands are constants, the result is one, so
arithmetic on shapes disappears while a graph is built. Numbers of Python take the type of the
tensor beside them. Axes may be negative.
"""

from __future__ import annotations

from autotune.networks.graph.graph import (
    Graph,
    HostOperator,
    Loop,
    Node,
    Requirement,
    Value,
    constant,
    input_value,
)

__all__ = [
    "Graph",
    "HostOperator",
    "Loop",
    "Node",
    "Requirement",
    "Value",
    "constant",
    "input_value",
]

"""Networks as graphs of workloads, the operations that build them, and their evaluator.

Operations take and return :class:`Value`; where all operands are constants the result is one, so
arithmetic on shapes disappears while a graph is built. Numbers of Python take the type of the
tensor beside them, and axes may be negative. The operations by kind:

- ``elementwise``: functions of elements on shapes that broadcast, written on :class:`Scalar`;
- ``movement``: order, shape, parts and margins; elements where data says;
- ``windows``: Einstein's sums, convolutions;
- ``reductions``: sums and extremes; running sums, and loops of one step, by which recurrences are
  read; sorting, places and boxes, which the host runs.

:func:`evaluate` computes a graph in numpy: it is the reference for whatever runs it.
"""

from __future__ import annotations

from autotune.networks.graph.elementwise import (
    Scalar,
    binary,
    cast,
    clamp,
    elementwise,
    maximum,
    minimum,
    select,
    unary,
    where,
)
from autotune.networks.graph.evaluator import (
    evaluate,
    evaluate_node,
)
from autotune.networks.graph.graph import (
    Graph,
    HostOperator,
    Loop,
    Node,
    Requirement,
    Value,
    constant,
    input_value,
    readers,
    rewritten,
)
from autotune.networks.graph.making import (
    workload,
)
from autotune.networks.graph.movement import (
    broadcast,
    concat,
    flip,
    gather_nd,
    one_hot,
    pad,
    reshape,
    scatter_along,
    scatter_nd,
    slice_axes,
    slice_axis,
    split,
    squeeze,
    stack,
    take,
    take_along,
    tile,
    transpose,
    unsqueeze,
)
from autotune.networks.graph.reductions import (
    arg,
    determinant,
    log_softmax,
    log_sum_exp,
    loop,
    mean,
    non_max_suppression,
    nonzero,
    normalized,
    reduce,
    scan,
    softmax,
    sort,
    top_k,
    unique,
    variance,
)
from autotune.networks.graph.windows import (
    Window,
    contract,
    convolution,
    convolution_integer,
    einsum,
    matmul,
    matmul_integer,
    resample,
    transposed_convolution,
    window_arg,
    window_reduce,
)

__all__ = [
    "Graph",
    "HostOperator",
    "Loop",
    "Node",
    "Requirement",
    "Scalar",
    "Value",
    "Window",
    "arg",
    "binary",
    "broadcast",
    "cast",
    "clamp",
    "concat",
    "constant",
    "contract",
    "convolution",
    "convolution_integer",
    "determinant",
    "einsum",
    "elementwise",
    "evaluate",
    "evaluate_node",
    "flip",
    "gather_nd",
    "input_value",
    "log_softmax",
    "log_sum_exp",
    "loop",
    "matmul",
    "matmul_integer",
    "maximum",
    "mean",
    "minimum",
    "non_max_suppression",
    "nonzero",
    "normalized",
    "one_hot",
    "pad",
    "readers",
    "reduce",
    "resample",
    "reshape",
    "rewritten",
    "scan",
    "scatter_along",
    "scatter_nd",
    "select",
    "slice_axes",
    "slice_axis",
    "softmax",
    "sort",
    "split",
    "squeeze",
    "stack",
    "take",
    "take_along",
    "tile",
    "top_k",
    "transpose",
    "transposed_convolution",
    "unary",
    "unique",
    "unsqueeze",
    "variance",
    "where",
    "window_arg",
    "window_reduce",
    "workload",
]

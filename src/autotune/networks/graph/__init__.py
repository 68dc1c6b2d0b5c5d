"""Networks as graphs of workloads, the operations that build them, and their evaluator.

Operations take and return :class:`Value`; where all operands are constants, the result is one, so
arithmetic on shapes disappears while a graph is built. Numbers of Python take the type of the
tensor beside them. Axes may be negative.

graph.py    Value(shape, dtype, name, constant, node, position), Node, Graph(inputs, outputs: dict name->Value),
            constant(array, dtype=None, name=""), input_value(name, shape, dtype)
scalars.py  Scalar: expression with a type, operators + - * / // % ** < <= > >= & | ~ -x, .equals .differs .cast(dtype) .call("exp") ;
            where(c, a, b), maximum(a, b), minimum(a, b) on Scalars; numbers adapt to the type of the other side
elementwise.py
            elementwise(function, *operands, dtype=None, name="")   function: Scalars -> Scalar; operands Values or numbers, numpy broadcasting.
                Halves arrive as float32 and the result is rounded back (or dtype=...)
            unary(op, x)  op of autotune.ir.expressions.scalar.UNARY, or of host.FUNCTIONS (tan, asin, ... by libm; float only)
            binary(op, a, b)  add sub mul div max min pow mod lt le gt ge eq ne and or (+ fmod, xor, bit_and, bit_or, bit_xor, shift_left, shift_right)
            select(condition, a, b), cast(x, dtype), clamp(x, low=None, high=None)
movement.py transpose(x, order), reshape(x, shape), broadcast(x, shape), slice_axes(x, starts, stops, steps) (one per axis, python semantics resolved
            by the caller: 0<=start), crop by axis: slice_axis(x, axis, start, stop, step=1) (python slice semantics), split(x, sizes, axis),
            concat(values, axis), stack(values, axis), flip(x, axes), squeeze(x, axes), unsqueeze(x, axes), tile(x, repeats),
            pad(x, low, high, mode="constant"|"edge"|"reflect"|"wrap", value=0) (negative widths crop)
indexing.py take(x, indices, axis), take_along(x, indices, axis), gather_nd(x, indices, batch_dims=0), one_hot(indices, depth, on, off, axis),
            scatter_along(x, indices, updates, axis, combiner=None), scatter_nd(x, indices, updates, combiner=None); negative indices count from the end
reductions.py reduce(combiner, x, axes=None, keepdims=True, dtype=None)  add mul max min (and, or on bool through max/min),
            mean(x, axes, keepdims), variance(x, axes, keepdims, correction=0), arg(op "max"|"min", x, axis, keepdims, last=False) -> int64,
            softmax(x, axis), log_softmax(x, axis), normalized(x, axes, epsilon) ((x-mean)*rsqrt(var+eps)), log_sum_exp(x, axes, keepdims)
products.py einsum(equation, *operands, dtype=None), matmul(a, b, dtype=None), matmul_integer(a, b, a_zero=None, b_zero=None)
windows.py  convolution(x, w, strides, low, high, dilations, groups=1, dtype=None, pad_value=0)  x [n, c, *spatial], w [co, ci/groups, *kernel]
            convolution_integer(x, w, x_zero, w_zero, ...), transposed_convolution(x, w [ci, co/groups, *k], strides, low, high, dilations, groups, output_padding)
            window_reduce(combiner, x, kernel, strides, low, high, dilations, dtype=None), window_arg(x, kernel, ...) (max pooling's places, flat per channel)
            resample(x, axis, places [out, taps] int, weights [out, taps])  (Resize of any mode, one axis at a time)
scans.py    scan(combiner, x, axis, exclusive=False, reverse=False), loop(step, trips, states, slices=(), fixed=(), reverse=(), kept_reverse=())
            step: function(states, slices, fixed: lists of Values) -> (next states, kept); returns (last states, kept stacked along axis 0)
host.py     top_k(x, k, axis, largest, sorted) -> values, indices; sort(x, axis, descending) -> values, indices; nonzero(x, bound), unique(...), nms(...)
evaluator.py evaluate(graph, inputs: dict name->array) -> dict name->array; evaluate_node
executor.py GraphExecutable(graph, target, threads)(inputs) -> dict
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

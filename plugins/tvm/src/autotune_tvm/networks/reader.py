"""From a Relax module to the core's graph: every compiled function is a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from tvm import relax, te, topi
from tvm.ir import GenericConst, IRModule, Tuple, Var
from tvm.ir.transform import Sequential

from autotune.errors import UnsupportedWorkload
from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Value
from autotune_tvm.importer import import_module
from autotune_tvm.networks.graph import (
    ENTRY,
    array_of,
    bindings_of,
    dtype_of,
    operator_of,
    shape_of,
)

__all__ = ["read_graph"]

_BFLOAT16 = "bfloat16"

Operator = Callable[[Any, list[Value]], Sequence[Value]]
"""From a call of Relax and its tensors to its results."""


def read_graph(module: IRModule, names: Sequence[str]) -> Graph:
    """The network of a module.

    Operators that only give a tensor another shape, and those that no loop nest says, are the
    graph's own; TVM writes the others as functions, which are read.

    Args:
        module: Has a function ``main`` of tensors of fixed shapes.
        names: Of its outputs, in order.

    Raises:
        UnsupportedWorkload: an operator has no form here, or depends on what is known only when
            the network runs; names it.
    """
    module = Sequential(
        [
            relax.transform.DecomposeOpsForInference(),
            relax.transform.CanonicalizeBindings(),
            relax.transform.LegalizeOps(
                {"relax.take": _looked_up}, [f"relax.{name}" for name in _OPERATORS]
            ),
        ]
    )(module)
    reader = _Reader(module)
    function = module[ENTRY]
    for parameter in function.params:
        shape = shape_of(parameter)
        assert shape is not None  # checked by who asks for its tensors
        reader.known[parameter] = ops.input_value(parameter.name, shape, dtype_of(parameter))
    inputs = tuple(reader.known[parameter] for parameter in function.params)
    for binding in bindings_of(function):
        reader.known[binding.var] = reader.value(binding.value)
    body = function.body
    result = reader.value(body.body if isinstance(body, relax.SeqExpr) else body)
    outputs = list(_flat(result))
    return Graph(inputs, dict(zip(names, outputs, strict=True)))


def _flat(value: Any) -> Any:
    if isinstance(value, Value):
        yield value
    else:
        for item in value:
            yield from _flat(item)


@frozen(eq=False)
class _Reader:
    """A function that is being read.

    Attributes:
        module: Where the functions are that it calls.
        known: By variable what it is bound to: a value, or a tuple of what a tuple holds.
        constants: By place in memory, so that one constant is one value.
    """

    module: IRModule
    known: dict[Any, Any] = field(factory=dict)
    constants: dict[int, Value] = field(factory=dict)

    def value(self, expression: Any) -> Any:
        """Value of an expression."""
        if isinstance(expression, Var):
            return self.known[expression]
        if isinstance(expression, Tuple):
            return tuple(self.value(item) for item in expression.fields)
        if isinstance(expression, relax.TupleGetItem):
            return self.value(expression.tuple_value)[expression.index]
        if isinstance(expression, GenericConst):
            return self._constant(expression)
        name = operator_of(expression)
        if name == "call_tir":
            found = self._called(expression)
        elif name in _OPERATORS:
            tensors = [self.value(it) for it in expression.args if dtype_of(it)]
            found = _OPERATORS[name](expression, tensors)
        else:
            raise UnsupportedWorkload(
                f"operator {name or type(expression).__name__!r} of a Relax module has no form "
                "as a loop nest"
            )
        single = len(found) == 1 and not isinstance(expression.ty, relax.TupleType)
        return found[0] if single else tuple(found)

    def _constant(self, expression: Any) -> Value:
        array, dtype = array_of(expression), dtype_of(expression)
        assert array is not None  # it is a constant
        key = int(expression.value.data_ptr()) if array.size else id(expression)
        if key not in self.constants:
            stored = array.view(np.uint16) if dtype == _BFLOAT16 else array
            self.constants[key] = ops.constant(stored, dtype)
        return self.constants[key]

    def _called(self, call: Any) -> Sequence[Value]:
        """The results of a compiled function."""
        name = str(call.args[0].name_hint)
        try:
            workload, _ = import_module(self.module[name])
        except UnsupportedWorkload as error:
            raise UnsupportedWorkload(f"function {name!r} of a Relax module: {error}") from error
        operands = [self.value(it) for it in call.args[1].fields]
        return ops.workload(evolve(workload, name=name), operands)


def _view(call: Any, tensors: list[Value]) -> Sequence[Value]:
    shape = shape_of(call)
    if shape is None:
        raise UnsupportedWorkload(
            f"operator {operator_of(call)!r} gives a tensor of a shape that is known only when it "
            "runs"
        )
    return [ops.reshape(tensors[0], shape)]


def _integer(call: Any, name: str) -> int:
    return int(getattr(call.attrs, name))


def _top_k(call: Any, tensors: list[Value]) -> Sequence[Value]:
    x, axis, k = tensors[0], _integer(call, "axis"), _integer(call, "k")
    values, places = ops.top_k(
        x, k if k > 0 else x.shape[axis], axis, largest=bool(call.attrs.largest)
    )
    places = ops.cast(places, str(call.attrs.dtype))
    return {"both": [values, places], "values": [values], "indices": [places]}[
        str(call.attrs.ret_type)
    ]


def _sort(call: Any, tensors: list[Value]) -> Sequence[Value]:
    return [ops.sort(tensors[0], _integer(call, "axis"), bool(call.attrs.descending))[0]]


def _argsort(call: Any, tensors: list[Value]) -> Sequence[Value]:
    order = ops.sort(tensors[0], _integer(call, "axis"), bool(call.attrs.descending))[1]
    return [ops.cast(order, str(call.attrs.dtype))]


def _scan(combiner: str, call: Any, tensors: list[Value]) -> Sequence[Value]:
    x = ops.cast(tensors[0], dtype_of(call))
    if call.attrs.axis is None:
        x = ops.reshape(x, [x.size])
    axis = 0 if call.attrs.axis is None else _integer(call, "axis")
    return [ops.scan(combiner, x, axis, exclusive=bool(call.attrs.exclusive))]


_COMBINERS = {"update": "", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _scatter_along(call: Any, tensors: list[Value]) -> Sequence[Value]:
    x, indices, updates = tensors
    combiner = _COMBINERS[str(call.attrs.reduction)]
    return [ops.scatter_along(x, indices, updates, _integer(call, "axis"), combiner)]


def _scatter_nd(call: Any, tensors: list[Value]) -> Sequence[Value]:
    x, indices, updates = tensors
    return [ops.scatter_nd(x, indices, updates, _COMBINERS[str(call.attrs.reduction)])]


_OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        **dict.fromkeys(("reshape", "expand_dims", "squeeze", "flatten"), _view),
        "cumsum": partial(_scan, "add"),
        "cumprod": partial(_scan, "mul"),
        "topk": _top_k,
        "sort": _sort,
        "argsort": _argsort,
        "scatter_elements": _scatter_along,
        "scatter_nd": _scatter_nd,
    }
)
"""Operators that TVM does not write as functions, or only for some targets."""


def _looked_up(builder: Any, call: Any) -> Any:
    """Write a lookup in a table; of the usual one, TVM's own function warns each time."""
    (x, places), axis, mode = call.args, call.attrs.axis, str(call.attrs.mode)
    if mode != "fast":
        return builder.call_te(topi.take, x, places, axis, mode=mode)
    # Without one, the table is a vector.
    return builder.call_te(_take, x, places, int(axis or 0), primfunc_name_hint="take")


def _take(x: Any, places: Any, axis: int) -> Any:
    first, behind = axis % len(x.shape), axis % len(x.shape) + len(places.shape)

    def element(*at: Any) -> Any:
        return x(*at[:first], places(*at[first:behind]), *at[behind:])

    shape = [*x.shape[:first], *places.shape, *x.shape[first + 1 :]]
    return te.compute(shape, element, "T_take")

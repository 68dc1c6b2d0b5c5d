"""From a workload to a TIR function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tvm import IRModule, te, tirx

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    index_bounds,
    is_speculatable,
)
from autotune.ir.expressions.scalar import loads, walk
from autotune.ir.workloads import Stage, Workload
from autotune_tvm.scans import Continuation, with_scans

__all__ = ["ENTRY", "module_for"]

ENTRY = "main"
"""Name of the one function of every module that this plugin builds."""

_BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": tirx.max,
    "min": tirx.min,
    "pow": tirx.power,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": tirx.And,
    "or": tirx.Or,
}
_UNARY = {
    "abs": tirx.abs,
    "exp": tirx.exp,
    "log": tirx.log,
    "sqrt": tirx.sqrt,
    "rsqrt": tirx.rsqrt,
    "sin": tirx.sin,
    "cos": tirx.cos,
    "tanh": tirx.tanh,
    "sigmoid": tirx.sigmoid,
    "erf": tirx.erf,
    "floor": tirx.floor,
    "ceil": tirx.ceil,
    "round": tirx.nearbyint,
    "not": tirx.Not,
}
_MOST_NARROW = (1 << 31) - 1
_EXACT = ("abs", "floor", "ceil", "round", "not")
_REDUCERS = {
    "add": te.sum,
    "max": te.max,
    "min": te.min,
    "mul": te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="prod"),
}
_ANY = te.comm_reducer(lambda a, b: tirx.Or(a, b), lambda dtype: tirx.const(False, dtype))
_ALL = te.comm_reducer(lambda a, b: tirx.And(a, b), lambda dtype: tirx.const(True, dtype))
_BOOL_REDUCERS = {"add": _ANY, "max": _ANY, "mul": _ALL, "min": _ALL}


def module_for(workload: Workload, parameters: Sequence[str] = ()) -> IRModule:
    """The module whose one function, called ``main``, computes ``workload``.

    Blocks are called after their stages and loops after their axes, spatial axes before reduction
    axes.

    Args:
        workload: What it computes.
        parameters: The tensors that it takes, in order; by default the inputs and then the
            outputs, in the workload's order.

    Raises:
        UnsupportedWorkload: TVM has no form for a part of it.
    """
    kind = _index_type(workload)
    tensors: dict[str, Any] = {
        tensor.name: te.placeholder(_extents(tensor.shape, kind), tensor.dtype, tensor.name)
        for tensor in workload.inputs
    }
    for stage in workload.stages:
        _check_used(workload, stage)
        tensors[stage.name] = _compute(stage, tensors, kind)
    names = parameters or (*(tensor.name for tensor in workload.inputs), *workload.outputs)
    arguments = [tensors[name] for name in names]
    function = te.create_prim_func(arguments).with_attr("global_symbol", ENTRY)
    # Tensor expressions have no scans: there those stages are what each element adds of its own.
    scans = [stage for stage in workload.stages if stage.scan_axis is not None]
    function = with_scans(function, {stage.name: _continuation(stage) for stage in scans})
    return IRModule({ENTRY: function})


def _index_type(workload: Workload) -> str:
    """The type of loops and indices: the narrowest in which none overflows."""
    if any(tensor.elements > _MOST_NARROW for tensor in workload.tensors.values()):
        return "int64"
    for stage in workload.stages:
        for node in walk(stage.body):
            for part in _parts(node.index) if isinstance(node, IndexValue) else ():
                if max(map(abs, index_bounds(part, stage.extents))) > _MOST_NARROW:
                    return "int64"
    return "int32"


def _parts(index: IntExpr) -> Iterator[IntExpr]:
    yield index
    for argument in index.args:
        if isinstance(argument, IntExpr):
            yield from _parts(argument)


def _extents(shape: Sequence[int], kind: str) -> list[Any]:
    return [tirx.const(extent, kind) for extent in shape]


def _continuation(stage: Stage) -> Continuation:
    along = [axis.kind for axis in stage.axes].index("scan")
    start = tirx.const(stage.identity(), stage.output.dtype)
    return Continuation(along, str(stage.combiner), start)


def _check_used(workload: Workload, stage: Stage) -> None:
    """A function made from tensor expressions contains what its outputs depend on, and no more."""
    if stage.name not in workload.outputs and not workload.consumers(stage.name):
        raise UnsupportedWorkload(
            f"stage {stage.name!r} of workload {workload.name!r} is neither read nor returned"
        )


def _compute(stage: Stage, tensors: Mapping[str, Any], kind: str) -> Any:
    if stage.scan_axis is not None and stage.output.dtype == "bool":
        raise UnsupportedWorkload(f"stage {stage.name!r} scans truth values: cast them to numbers")
    reduce_axes = {
        axis.name: te.reduce_axis(_extents((0, axis.extent), kind), name=axis.name)
        for axis in stage.reduce_axes
    }
    names = [axis.name for axis in stage.spatial_axes]

    def value(*indices: Any) -> Any:
        env = dict(zip(names, indices, strict=True))
        env.update({name: axis.var for name, axis in reduce_axes.items()})
        body = _Body(stage, env, tensors, kind).scalar(stage.body)
        if _dtype(body) != stage.output.dtype:
            body = tirx.Cast(stage.output.dtype, body)
        if stage.combiner is None or stage.scan_axis is not None:
            return body
        reducers = _BOOL_REDUCERS if stage.output.dtype == "bool" else _REDUCERS
        return reducers[stage.combiner](body, axis=list(reduce_axes.values()))

    shape = _extents(stage.output.shape, kind)
    return te.compute(shape, value, name=stage.name, varargs_names=names)


class _Body:
    """Turns expressions of one stage into TIR over the variables ``env``."""

    def __init__(
        self, stage: Stage, env: Mapping[str, Any], tensors: Mapping[str, Any], kind: str
    ) -> None:
        self._stage = stage
        self._kind = kind
        self._env = env
        self._tensors = tensors

    def scalar(self, body: ScalarExpr) -> Any:
        if isinstance(body, Constant):
            return tirx.const(body.value, body.dtype)
        if isinstance(body, IndexValue):
            return self.index(body.index)
        if isinstance(body, Load):
            indices = [self.index(index) for index in body.indices]
            return self._tensors[body.tensor](*indices)
        if isinstance(body, Gather):
            return self._tensors[body.tensor](*(self.scalar(index) for index in body.indices))
        if isinstance(body, Cast):
            # Built as a node: `astype` would drop a conversion that it thinks redundant.
            return tirx.Cast(body.dtype, self.scalar(body.operand))
        if isinstance(body, Unary):
            return self._unary(body.op, self.scalar(body.operand))
        if isinstance(body, Select):
            branches = map(self.scalar, (body.on_true, body.on_false))
            operands = [self.scalar(body.condition), *_alike(*branches)]
            safe = self._is_safe(body.on_true) and self._is_safe(body.on_false)
            return tirx.Select(*operands) if safe else tirx.if_then_else(*operands)
        return self._binary(body)

    def _unary(self, op: str, operand: Any) -> Any:
        if op == "neg":
            return -operand
        if op not in _EXACT and _is_integer(operand):
            operand = tirx.Cast("float32", operand)
        if op == "erf" and _dtype(operand) == "float16":
            # LLVM has none, and TVM's own of half precision is not lowered.
            return tirx.Cast("float16", tirx.erf(tirx.Cast("float32", operand)))
        return _UNARY[op](operand)

    def _binary(self, body: Binary) -> Any:
        left, right = self.scalar(body.left), self.scalar(body.right)
        if body.op == "div":
            integers = _is_integer(left) and _is_integer(right)
            return tirx.truncdiv(left, right) if integers else tirx.div(left, right)
        if body.op == "pow" and _is_integer(left):
            raise UnsupportedWorkload(
                f"stage {self._stage.name!r} has powers of integers, which TVM does not have"
            )
        if body.op == "mod":
            if _is_integer(left) and _is_integer(right):
                return tirx.floormod(left, right)
            # LLVM's remainder of floats is not among TVM's intrinsics.
            return left - tirx.floor(tirx.div(left, right)) * right
        if body.op in ("eq", "ne"):
            # The operators of these two compare references, lazily.
            return (tirx.EQ if body.op == "eq" else tirx.NE)(*_alike(left, right))
        return _BINARY[body.op](left, right)

    def index(self, index: IntExpr) -> Any:
        if index.op == "const":
            return tirx.const(index.args[0], self._kind)
        if index.op == "var":
            return self._env[index.args[0]]
        operands = [self.index(argument) for argument in index.args]
        if index.op == "select":
            return tirx.Select(operands[0] != 0, *operands[1:])
        result = operands[0]
        for operand in operands[1:]:
            result = _INDEX[index.op](result, operand)
        return result

    def _is_safe(self, body: ScalarExpr) -> bool:
        """Return whether it may be in a TVM ``Select``, which vectorises; a conditional does not.

        Clamped indices may not: TVM takes a clamp away where the condition implies it, and reads
        of both branches are made.
        """
        if any(_clamps(index) for load in loads(body) for index in load.indices):
            return False
        shapes = {
            node.tensor: [int(extent) for extent in self._tensors[node.tensor].shape]
            for node in loads(body)
        }
        return is_speculatable(body, self._stage.extents, shapes)


_INDEX = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": tirx.floordiv,
    "mod": tirx.floormod,
    "min": tirx.min,
    "max": tirx.max,
    "less": lambda a, b: tirx.Cast(_dtype(a), a < b),
}


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Two integers of one type: indices are of the narrowest that does, beside those of tensors.

    TVM's operators see to that, and the nodes that are made here do not.
    """
    widths = [it.ty.dtype.bits for it in (left, right)]
    if widths[0] == widths[1] or not (_is_integer(left) and _is_integer(right)):
        return left, right
    wider = _dtype((left, right)[widths[1] > widths[0]])
    return tirx.Cast(wider, left), tirx.Cast(wider, right)


def _clamps(index: IntExpr) -> bool:
    """Return whether an index is a minimum or a maximum, or made of one."""
    inner = (argument for argument in index.args if isinstance(argument, IntExpr))
    return index.op in ("min", "max", "select") or any(map(_clamps, inner))


def _dtype(value: Any) -> str:
    return str(value.ty.dtype)


def _is_integer(value: Any) -> bool:
    return _dtype(value).startswith(("int", "uint"))

"""Padding the iteration space of a block: a rewrite of the program ahead of scheduling.

TVM's own ``pad_einsum`` accepts trivial indices only; convolutions need windows. The rewrite
gives every operand that depends on a padded axis a zero-extended copy and the result a padded
buffer of its own, so that the block itself runs without predicates.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import IRModule, Range
from tvm.s_tir import SBlock, SBlockRealize

from autotune.errors import InvalidValueError
from autotune.workloads import Stage

_LOADS = ("TensorLoad", "BufferLoad")
_OPERANDS = ("a", "b", "value", "true_value", "false_value")


def padded_name(stage: str, tensor: str) -> str:
    """Name of the padded buffer that ``stage`` uses in place of ``tensor``."""
    return f"{tensor}_{stage}_pad"


def pack_name(stage: str, tensor: str) -> str:
    """Name of the block that fills the padded copy of an operand."""
    return f"{tensor}_{stage}_pack"


def write_name(stage: str) -> str:
    """Name of the block that copies the padded result back."""
    return f"{stage}_write"


def pad_module(
    module: IRModule, stage: Stage, block_name: str, extents: dict[str, int]
) -> tuple[IRModule, frozenset[str]]:
    """Pad axes of one block of ``module["main"]``.

    Args:
        module: One function ``main`` whose block ``block_name`` is a plain loop nest.
        stage: The stage that the block computes; its axes are the block's, in order.
        block_name: Name of the block.
        extents: New extent by axis name.

    Returns:
        The new module, and the names of the operands that now have padded copies.
    """
    function = module["main"]
    root = function.body.block
    nests = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    position = next(
        index for index, nest in enumerate(nests) if _innermost(nest).block.name_hint == block_name
    )
    rewriter = _Padding(stage, nests[position], extents)
    nests[position : position + 1] = rewriter.rewritten()
    body = SBlock(
        [],
        [],
        [],
        root.name_hint,
        tirx.SeqStmt(nests),
        alloc_buffers=[*root.alloc_buffers, *rewriter.buffers],
        annotations=root.annotations,
    )
    realize = SBlockRealize([], True, body)
    padded = tirx.PrimFunc(function.params, realize, function.ret_type, function.attrs)
    return IRModule({"main": padded}, attrs=module.attrs), frozenset(rewriter.operands)


def _innermost(nest: Any) -> Any:
    while isinstance(nest, tirx.For):
        nest = nest.body
    return nest


class _Padding:
    """One block's rewrite."""

    def __init__(self, stage: Stage, nest: Any, extents: dict[str, int]) -> None:
        self.stage = stage
        self.realize = _innermost(nest)
        self.extents = {axis.name: extents.get(axis.name, axis.extent) for axis in stage.axes}
        self.grown = {axis for axis, extent in extents.items() if extent != stage.extents[axis]}
        self.buffers: list[Any] = []
        self.operands: dict[str, Any] = {}
        self.copies: list[Any] = []
        self.result: Any = None

    def rewritten(self) -> list[Any]:
        """Copies of the operands, the padded block, and the copy of the result."""
        block = self.realize.block
        old = block.body.buffer
        shape = [self.extents[axis.name] for axis in self.stage.spatial_axes]
        self.result = tirx.decl_buffer(shape, old.dtype, padded_name(self.stage.name, "result"))
        self.buffers.append(self.result)
        store = tirx.BufferStore(self.result, self._rebuild(block.body.value), block.body.indices)
        init = tirx.BufferStore(self.result, block.init.value, block.init.indices)
        main = self._nest(
            block.name_hint,
            list(block.iter_vars),
            [self.extents[axis.name] for axis in self.stage.axes],
            store,
            init,
        )
        indices, loops = self._fresh(old.shape)
        load = tirx.BufferLoad(self.result, indices)
        back = self._nest(
            write_name(self.stage.name),
            loops,
            list(old.shape),
            tirx.BufferStore(old, load, indices),
        )
        return [*self.copies, main, back]

    def _fresh(self, shape: Any) -> tuple[list[Any], list[Any]]:
        variables = [tirx.Var(f"v{index}", "int32") for index in range(len(shape))]
        iters = [
            tirx.IterVar(Range(0, int(extent)), variable, tirx.IterVar.DataPar)
            for variable, extent in zip(variables, shape, strict=True)
        ]
        return variables, iters

    def _nest(
        self, name: str, iters: list[Any], extents: list[Any], store: Any, init: Any = None
    ) -> Any:
        """Serial loops around a block with one iteration variable a loop."""
        sized = [
            tirx.IterVar(Range(0, int(extent)), it.var, it.iter_type)
            for it, extent in zip(iters, extents, strict=True)
        ]
        names = [f"{it.var.name}_{name}" for it in iters]
        loops = [tirx.Var(text, "int32") for text in names]
        reads = [
            _point(load.source, load.indices)
            for load in _loads(store.value)
            if not load.source.same_as(store.buffer)
        ]
        writes = [_point(store.buffer, store.indices)]
        block = SBlock(sized, reads, writes, name, store, init=init)
        body: Any = SBlockRealize(loops, True, block)
        for loop, extent in reversed(list(zip(loops, extents, strict=True))):
            body = tirx.For(loop, 0, int(extent), tirx.ForKind.SERIAL, body)
        return body

    def _rebuild(self, value: Any) -> Any:
        """``value`` with padded operands read from their copies."""
        kind = type(value).__name__
        if kind in _LOADS:
            return self._load(value)
        if kind in ("IntImm", "FloatImm", "Var", "PrimVar"):
            return value
        if hasattr(value, "a") and hasattr(value, "b"):
            return type(value)(self._rebuild(value.a), self._rebuild(value.b))
        if kind == "Cast":
            return self._rebuild(value.value).astype(str(value.ty.dtype))
        if kind == "Call":
            return tirx.Call(value.ty.dtype, value.op, [self._rebuild(arg) for arg in value.args])
        if kind == "Select":
            return tirx.Select(
                value.condition, self._rebuild(value.true_value), self._rebuild(value.false_value)
            )
        raise InvalidValueError(f"cannot pad a block that computes {kind}")

    def _load(self, load: Any) -> Any:
        buffer = load.source
        if buffer.same_as(self.realize.block.body.buffer):
            return tirx.BufferLoad(self.result, load.indices)
        forms = next(
            self.stage.access_map(item)
            for item in self.stage.loads
            if item.tensor == self._tensor(buffer)
        )
        if not any(axis in form.coefficients for form in forms for axis in self.grown):
            return load
        name = self._tensor(buffer)
        if name not in self.operands:
            reach = [form.bounds(self.extents)[1] + 1 for form in forms]
            shape = [
                max(int(extent), size) for extent, size in zip(buffer.shape, reach, strict=True)
            ]
            self._add_copy(name, buffer, shape)
        return tirx.BufferLoad(self.operands[name], load.indices)

    def _tensor(self, buffer: Any) -> str:
        return str(buffer.name)

    def _add_copy(self, tensor: str, buffer: Any, shape: list[int]) -> None:
        padded = tirx.decl_buffer(shape, buffer.dtype, padded_name(self.stage.name, tensor))
        indices, iters = self._fresh(shape)
        value = tirx.BufferLoad(buffer, indices)
        inside = [
            index < int(own)
            for index, own, size in zip(indices, buffer.shape, shape, strict=True)
            if size > int(own)
        ]
        if inside:
            zero = tirx.const(0, buffer.dtype)
            value = tirx.if_then_else(tirx.all(*inside), value, zero)
        store = tirx.BufferStore(padded, value, indices)
        self.copies.append(
            self._nest(pack_name(self.stage.name, tensor), iters, list(shape), store)
        )
        self.buffers.append(padded)
        self.operands[tensor] = padded


def _point(buffer: Any, indices: Any) -> Any:
    return tirx.BufferRegion(buffer, [Range.from_min_extent(index, 1) for index in indices])


def _loads(value: Any) -> list[Any]:
    """Every load of an expression that ``_rebuild`` understands."""
    if type(value).__name__ in _LOADS:
        return [value]
    parts = [getattr(value, name) for name in _OPERANDS if hasattr(value, name)]
    parts.extend(getattr(value, "args", ()))
    return [load for part in parts for load in _loads(part)]

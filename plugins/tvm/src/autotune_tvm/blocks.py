"""Reads the blocks of a TIR function as stages.

A function is accepted when every block stands in a loop nest of its own, is bound to its loops
one to one, and writes one element of one tensor at its spatial axes, which may continue the
element before it (:mod:`autotune_tvm.scans`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from attrs import evolve, frozen
from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.s_tir import SBlock, SBlockRealize

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import ScalarExpr
from autotune.ir.workloads import Axis, Stage, Tensor
from autotune_tvm.scalar_import import BodyReader, Unsupported, dtype_of
from autotune_tvm.scans import continuation

__all__ = [
    "Block",
    "FunctionReading",
    "Nest",
    "identifier",
    "nests_of",
    "read_function",
    "reads",
    "walk",
]

_COMBINERS = ((tirx.Add, "add"), (tirx.Mul, "mul"), (tirx.Max, "max"), (tirx.Min, "min"))


@frozen
class Block:
    """A block that was understood.

    Attributes:
        name: Its name in the program.
        loop_axes: Names of the stage's axes in the order of the loops, outermost first.
        variable_axes: Names of the stage's axes in the order of the block's variables.
        stage: What it computes.
    """

    name: str
    loop_axes: tuple[str, ...]
    variable_axes: tuple[str, ...]
    stage: Stage

    @classmethod
    def of(cls, stage: Stage, read: Mapping[str, Block]) -> Block:
        """The block that computes a stage: one that was read, or as it is emitted.

        Emitted blocks have reduced axes last, wherever the stage has them.
        """
        ordered = sorted(stage.axes, key=lambda axis: axis.kind == "reduce")
        axes = tuple(axis.name for axis in ordered)
        return read.get(stage.name) or cls(stage.name, axes, axes, stage)


@frozen
class FunctionReading:
    """A function that was understood.

    Attributes:
        parameters: The tensors that it takes, in order.
        blocks: Its blocks in order of execution.
    """

    parameters: tuple[Tensor, ...]
    blocks: tuple[Block, ...]


@frozen
class Nest:
    """A block with the loops around it, outermost first."""

    loops: tuple[Any, ...]
    realize: Any

    @property
    def name(self) -> str:
        """Name of the block."""
        return str(self.realize.block.name_hint)


def read_function(function: tirx.PrimFunc) -> FunctionReading:
    """The parts of ``function``.

    Raises:
        UnsupportedWorkload: names the block that cannot be expressed, and why.
    """
    nests = nests_of(function)
    taken: set[str] = set()
    names: dict[Any, str] = {}
    parameters = []
    for parameter in function.params:
        where = f"parameter {_name_of(parameter)!r}"
        parameters.append(_tensor(parameter, where, taken, is_given=True))
        names[parameter] = parameters[-1].name
    written = _written(nests)
    known = {buffer: name for buffer, name in names.items() if buffer not in written}
    blocks = []
    for nest in nests:
        try:
            tensor = _output(nest, names, parameters, taken)
            blocks.append(_BlockReader(nest, tensor, known).read())
        except Unsupported as reason:
            raise UnsupportedWorkload(f"block {nest.name!r}: {reason}") from None
        known[nest.realize.block.body.buffer] = tensor.name
    return FunctionReading(tuple(parameters), tuple(blocks))


def nests_of(function: tirx.PrimFunc) -> tuple[Nest, ...]:
    """The loop nests of ``function`` in order of execution.

    Raises:
        UnsupportedWorkload: it holds something else than loop nests with one block each.
    """
    root = function.body
    if not isinstance(root, SBlockRealize) or len(root.block.iter_vars) != 0:
        if isinstance(root, (SBlockRealize, tirx.For)):
            return (_nest(root),)
        raise UnsupportedWorkload(
            f"the function starts with {_kind(root)}, not a block: it was lowered already, "
            "or computes nothing"
        )
    if len(root.block.match_buffers) != 0:
        raise UnsupportedWorkload(f"block {str(root.block.name_hint)!r} matches buffers")
    body = root.block.body
    statements = body.seq if isinstance(body, tirx.SeqStmt) else [body]
    name = str(root.block.name_hint)
    _check_no_scatter(body, name)
    return tuple(_nest(statement, name) for statement in statements)


def _nest(statement: Any, root: str = "root") -> Nest:
    loops = []
    inner = statement
    while isinstance(inner, tirx.For):
        loops.append(inner)
        inner = inner.body
    if isinstance(inner, tirx.DeclBuffer):
        raise UnsupportedWorkload(
            f"buffer {_name_of(inner.buffer)!r} is another view of a buffer's data (DeclBuffer); "
            "blocks read and write buffers of their own"
        )
    if not isinstance(inner, SBlockRealize):
        around = f"inside loop {str(loops[-1].loop_var.name)!r} " if loops else ""
        within = ", ".join(repr(name) for name in _block_names(inner))
        holds = f" of blocks {within}" if within else ""
        # A scan or a call of a library is a block by itself.
        where = around if root == "root" else f"block {root!r}: {around}"
        raise UnsupportedWorkload(
            f"{where}there is {_kind(inner)}{holds}, not one block in a loop nest of its own"
        )
    nest = Nest(tuple(loops), inner)
    for loop in loops:
        if loop.kind != tirx.ForKind.SERIAL or loop.thread_binding is not None:
            raise UnsupportedWorkload(
                f"block {nest.name!r}: loop {str(loop.loop_var.name)!r} is not serial: "
                "it was scheduled already"
            )
    return nest


def _written(nests: tuple[Nest, ...]) -> set[Any]:
    written: dict[Any, str] = {}
    for nest in nests:
        store = nest.realize.block.body
        if not isinstance(store, tirx.BufferStore):
            _check_no_scatter(store, nest.name)
            holds = "an opaque block" if isinstance(store, SBlockRealize) else _kind(store)
            raise UnsupportedWorkload(f"block {nest.name!r} holds {holds}, not one store")
        if store.buffer in written:
            raise UnsupportedWorkload(
                f"block {nest.name!r} writes {_name_of(store.buffer)!r}, which block "
                f"{written[store.buffer]!r} wrote before: several writes"
            )
        written[store.buffer] = nest.name
    return set(written)


def _output(
    nest: Nest, names: dict[Any, str], parameters: list[Tensor], taken: set[str]
) -> Tensor:
    buffer = nest.realize.block.body.buffer
    if buffer in names:
        return next(tensor for tensor in parameters if tensor.name == names[buffer])
    return _tensor(buffer, f"block {nest.name!r}", taken)


def _tensor(buffer: Any, where: str, taken: set[str], *, is_given: bool = False) -> Tensor:
    """A buffer as a tensor with a name of its own, which is added to ``taken``.

    Where it begins may be left to the caller, where the caller gives it.
    """
    if not tirx.is_buffer_var(buffer):
        raise UnsupportedWorkload(f"{where} is not a tensor")
    shape = []
    for extent in buffer.shape:
        if not isinstance(extent, tirx.IntImm):
            raise UnsupportedWorkload(f"{where} has a dynamic shape: {_shape_text(buffer)}")
        shape.append(int(extent.value))
    offset = buffer.elem_offset
    plain_offset = _constant(offset) == 0 or (is_given and isinstance(offset, Var))
    if len(buffer.strides) != 0 or not plain_offset:
        raise UnsupportedWorkload(f"{where} is strided or has an offset")
    if str(buffer.scope()) != "global":
        raise UnsupportedWorkload(f"{where} lives in scope {str(buffer.scope())!r}, not 'global'")
    try:
        dtype = dtype_of(buffer)
    except Unsupported as reason:
        raise UnsupportedWorkload(f"{where}: {reason}") from None
    return Tensor(_unique(_name_of(buffer), taken), tuple(shape), dtype)


def identifier(name: str) -> str:
    """``name`` with everything but letters, digits and underscores replaced."""
    return "".join(char if char.isalnum() or char == "_" else "_" for char in name) or "tensor"


def _unique(name: str, taken: set[str]) -> str:
    """``name`` as an identifier that is not in ``taken``, added to it."""
    stem = identifier(name)
    result, count = stem, 1
    while result in taken:
        result, count = f"{stem}_{count}", count + 1
    taken.add(result)
    return result


class _BlockReader:
    """Reads one block.

    Args:
        nest: The block and its loops.
        tensor: The tensor that it writes.
        known: Names of the buffers that it may read.
    """

    def __init__(self, nest: Nest, tensor: Tensor, known: dict[Any, str]) -> None:
        self._nest = nest
        self._block: SBlock = nest.realize.block
        self._scan = continuation(self._block)
        self._scanned = (
            None if self._scan is None else self._block.body.indices[self._scan[0].along]
        )
        self._tensor = tensor
        self._known = known

    def read(self) -> Block:
        self._check_plain()
        axes = self._axes()
        store = self._block.body
        spatial = self._spatial_order(store.indices, axes)
        reductions = [axis for _, axis in axes.values() if axis.kind == "reduce"]
        variables: dict[Any, Axis | None] = dict.fromkeys(
            variable.var for variable in self._block.iter_vars
        )
        variables.update({variable: axis for variable, (_, axis) in axes.items()})
        reader = BodyReader(variables, self._known)
        body, combiner = self._body(reader, bool(reductions))
        stage = Stage(self._tensor, (*spatial, *reductions), body, combiner)
        if combiner is not None:
            self._check_identity(stage)
        order = sorted(axes.values(), key=lambda found: found[0])
        return Block(
            self._nest.name,
            tuple(axis.name for _, axis in order),
            tuple(axis.name for _, axis in axes.values()),
            stage,
        )

    def _check_plain(self) -> None:
        predicate = self._nest.realize.predicate
        if not isinstance(predicate, tirx.IntImm) or int(predicate.value) != 1:
            raise Unsupported("it runs under a predicate (T.where)")
        if len(self._block.match_buffers) != 0 or len(self._block.alloc_buffers) != 0:
            raise Unsupported("it matches or allocates buffers")

    def _axes(self) -> dict[Any, tuple[int, Axis]]:
        """Loop position and axis of every block variable, in the block's order."""
        loops = self._nest.loops
        position_of = {loop.loop_var: position for position, loop in enumerate(loops)}
        taken: set[str] = set()
        names = [_unique(str(loop.loop_var.name), taken) for loop in loops]
        axes: dict[Any, tuple[int, Axis]] = {}
        used: set[int] = set()
        values = self._nest.realize.iter_values
        for variable, value in zip(self._block.iter_vars, values, strict=True):
            name = str(variable.var.name)
            if not loops and _constant(value) == 0 and _constant(variable.dom.extent) == 1:
                continue  # How a block without loops is written: this is no axis.
            position = position_of.get(value) if isinstance(value, Var) else None
            if position is None or position in used:
                raise Unsupported(f"{name!r} is bound to {value}, not to a loop of its own")
            used.add(position)
            extent = _extent(loops[position], name)
            if _constant(variable.dom.min) != 0 or _constant(variable.dom.extent) != extent:
                raise Unsupported(f"{name!r} does not range over its whole loop")
            kinds = {tirx.IterVar.DataPar: "spatial", tirx.IterVar.CommReduce: "reduce"}
            if self._scan is not None and variable.var.same_as(self._scanned):
                kinds[tirx.IterVar.Ordered] = "spatial"
            if int(variable.iter_type) not in kinds:
                raise Unsupported(f"{name!r} is carried by its loop, neither spatial nor reduced")
            axis = Axis(names[position], extent, kinds[int(variable.iter_type)])
            axes[variable.var] = (position, axis)
        if len(used) != len(loops):
            spare = next(n for position, n in enumerate(names) if position not in used)
            raise Unsupported(f"loop {spare!r} is not bound to a variable of the block")
        return axes

    def _spatial_order(self, indices: Any, axes: dict[Any, tuple[int, Axis]]) -> tuple[Axis, ...]:
        """The spatial axes in the order in which they index the output."""
        order = []
        for position, index in enumerate(indices):
            found = axes.get(index) if isinstance(index, Var) else None
            if found is None or found[1].kind != "spatial" or found[1] in order:
                raise Unsupported(
                    f"index {position} of its write is {index}, not a spatial axis of its own"
                )
            order.append(found[1])
        missing = [
            axis.name for _, axis in axes.values() if axis.kind == "spatial" and axis not in order
        ]
        if missing:
            raise Unsupported(f"spatial axis {missing[0]!r} does not index what it writes")
        if tuple(axis.extent for axis in order) != self._tensor.shape:
            raise Unsupported(f"it writes a part of {self._tensor.name!r} only")
        if self._scan is not None:
            along = self._scan[0].along
            order[along] = evolve(order[along], kind="scan")
        return tuple(order)

    def _body(self, reader: BodyReader, reduces: bool) -> tuple[ScalarExpr, str | None]:
        value = self._block.body.value
        if not reduces:
            if self._block.init is not None:
                raise Unsupported("it has T.init() and reduces nothing")
            if self._scan is not None and not self._reads_output(self._scan[1]):
                return reader.scalar(self._scan[1]), self._scan[0].combiner
            if self._reads_output(value):
                raise Unsupported(f"it reads what it writes, {self._tensor.name!r}: loop-carried")
            return reader.scalar(value), None
        if self._block.init is None:
            raise Unsupported("it reduces without T.init()")
        for kind, combiner in _COMBINERS:
            if not isinstance(value, kind):
                continue
            for accumulator, other in ((value.a, value.b), (value.b, value.a)):
                if self._is_output(accumulator) and not self._reads_output(other):
                    return reader.scalar(other), combiner
        raise Unsupported("its update is not output = output (+, *, max or min) expression")

    def _is_output(self, value: Any) -> bool:
        store = self._block.body
        return (
            isinstance(value, TensorLoad)
            and value.source.same_as(store.buffer)
            and all(a.same_as(b) for a, b in zip(value.indices, store.indices, strict=True))
        )

    def _reads_output(self, value: Any) -> bool:
        return reads(value, self._block.body.buffer)

    def _check_identity(self, stage: Stage) -> None:
        init = self._block.init
        if self._scan is not None:
            init = tirx.BufferStore(
                self._block.body.buffer, self._scan[0].start, self._block.body.indices
            )
        value = init.value if isinstance(init, tirx.BufferStore) else None
        if isinstance(init, tirx.BufferStore) and not init.buffer.same_as(self._block.body.buffer):
            value = None
        if not isinstance(value, (tirx.IntImm, tirx.FloatImm)):
            raise Unsupported("T.init() does not store a constant to what the block writes")
        wanted = {float(stage.identity())}
        if math.isinf(float(stage.identity())):
            # TVM's own identities of max and min are the finite limits of the type.
            limit = stage.output.element.largest
            wanted.add(math.copysign(limit, float(stage.identity())))
        element = stage.output.element
        with np.errstate(over="ignore"):
            # As the program has it: TVM writes limits of float32 for those of bfloat16.
            stored = element.numbers(element.stored(np.asarray(value.value)))
        if not wanted & {float(value.value), float(stored)}:
            raise Unsupported(
                f"T.init() stores {value.value}, not the identity of {stage.combiner!r}"
            )


def reads(value: Any, buffer: Any) -> bool:
    """Whether an expression reads a buffer."""
    return any(isinstance(it, TensorLoad) and it.source.same_as(buffer) for it in walk(value))


def walk(node: Any) -> Iterator[Any]:
    """``node`` and every expression in it."""
    yield node
    parts: list[Any] = []
    for attribute in ("a", "b", "value", "condition", "true_value", "false_value"):
        if hasattr(node, attribute) and not isinstance(node, (tirx.IntImm, tirx.FloatImm)):
            parts.append(getattr(node, attribute))
    if isinstance(node, TensorLoad):
        parts = list(node.indices)
    elif hasattr(node, "args"):
        parts += list(node.args)
    for part in parts:
        yield from walk(part)


def _check_no_scatter(statement: Any, name: str) -> None:
    """Refuse a block whose loops store where data says: nothing proves that places differ."""
    for store in _bare_stores(statement):
        for position, index in enumerate(store.indices):
            if any(isinstance(node, TensorLoad) for node in walk(index)):
                raise UnsupportedWorkload(
                    f"block {name!r} scatters: index {position} of its write of "
                    f"{_name_of(store.buffer)!r} depends on data, and nothing says that no two "
                    "iterations write one element"
                )


def _bare_stores(statement: Any) -> Iterator[Any]:
    """The stores in a statement that are in no block in it."""
    if isinstance(statement, tirx.BufferStore):
        yield statement
    elif isinstance(statement, tirx.SeqStmt):
        for part in statement.seq:
            yield from _bare_stores(part)
    elif isinstance(statement, tirx.IfThenElse):
        for part in (statement.then_case, statement.else_case):
            yield from _bare_stores(part)
    elif hasattr(statement, "body") and not isinstance(statement, SBlockRealize):
        yield from _bare_stores(statement.body)


def _extent(loop: Any, name: str) -> int:
    extent = _constant(loop.extent)
    if extent is None:
        raise Unsupported(f"the loop of {name!r} has a dynamic extent: {loop.extent}")
    if _constant(loop.min) != 0:
        raise Unsupported(f"the loop of {name!r} does not start at 0")
    return extent


def _constant(value: Any) -> int | None:
    return int(value.value) if isinstance(value, tirx.IntImm) else None


def _name_of(buffer: Any) -> str:
    return str(getattr(buffer, "name", "") or "tensor")


def _shape_text(buffer: Any) -> str:
    return "(" + ", ".join(str(extent) for extent in buffer.shape) + ")"


def _kind(statement: Any) -> str:
    return type(statement).__name__


def _block_names(statement: Any) -> list[str]:
    """Names of the blocks directly inside ``statement``, through sequences and loops."""
    if isinstance(statement, SBlockRealize):
        return [str(statement.block.name_hint)]
    if isinstance(statement, tirx.For):
        return _block_names(statement.body)
    if isinstance(statement, tirx.SeqStmt):
        return [name for item in statement.seq for name in _block_names(item)]
    return []

"""Reads the blocks of a TIR function as stages.

A function is accepted when every block stands in a loop nest of its own, is bound to its loops
one to one, and writes one element of each of its tensors at its spatial axes. It may continue the
element before it (:mod:`autotune_tvm.scans`), reduce to several tensors at once, or hold another
block that reduces over windows whose size depends on the element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen
from tvm import tirx
from tvm.ir import Range, TensorLoad, Var
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer
from tvm_ffi import structural_equal

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import Constant
from autotune.ir.rewrites.reductions import (
    Reduction,
    Window,
    check_start,
    stages_of,
    window_of,
    within_windows,
)
from autotune.ir.workloads import Axis, Stage, Tensor
from autotune_tvm.passes.statements import at, nodes_in, reads
from autotune_tvm.scalar_import import BodyReader, dtype_of
from autotune_tvm.scans import COMBINE, continuation

__all__ = ["Block", "FunctionReading", "identifier", "read_function"]


@frozen
class Block:
    """A block that computes a stage just as the stage says.

    Attributes:
        name: Its name in the program.
        loop_axes: Names of the stage's axes in the order of the loops, outermost first.
        variable_axes: Names of the stage's axes in the order of the block's variables.
    """

    name: str
    loop_axes: tuple[str, ...]
    variable_axes: tuple[str, ...]

    @classmethod
    def of(cls, stage: Stage, read: Mapping[str, Block]) -> Block:
        """The block that computes a stage: one that was read, or as it is emitted.

        Emitted blocks have reduced axes last, wherever the stage has them.
        """
        ordered = sorted(stage.axes, key=lambda axis: axis.kind == "reduce")
        axes = tuple(axis.name for axis in ordered)
        return read.get(stage.name) or cls(stage.name, axes, axes)


@frozen
class FunctionReading:
    """A function that was understood.

    Attributes:
        parameters: The tensors that it takes, in order.
        stages: What it computes, in order of execution.
        blocks: By their names, the blocks of stages that are blocks as they stand.
    """

    parameters: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    blocks: Mapping[str, Block]


@frozen(eq=False)
class _Nest:
    """A block with the loops around it.

    Attributes:
        loops: The loops, outermost first.
        realize: The block, with what its variables are bound to.
        window: The block inside it that does its work, if that is another.
        stores: What is stored at a point.
        starts: What is stored before a reduction, by buffer.
    """

    loops: tuple[Any, ...]
    realize: Any
    window: _Nest | None
    stores: tuple[Any, ...]
    starts: Mapping[Any, Any]

    @property
    def name(self) -> str:
        """Name of the block."""
        return str(self.realize.block.name_hint)


def read_function(function: tirx.PrimFunc) -> FunctionReading:
    """The parts of ``function``.

    Raises:
        UnsupportedWorkload: names the block that cannot be expressed, and why.
    """
    parts = _parts_of(function)
    taken: set[str] = set()
    tensors: dict[Any, Tensor] = {}
    for parameter in function.params:
        where = f"parameter {_name_of(parameter)!r}"
        tensors[parameter] = _tensor(parameter, where, taken, is_given=True)
    parameters = tuple(tensors.values())
    written = _written(parts)
    known = {buffer: tensor for buffer, tensor in tensors.items() if buffer not in written}
    stages: list[Stage] = []
    blocks: dict[str, Block] = {}
    for part in parts:
        own = {
            buffer: tensors.get(buffer) or _tensor(buffer, f"block {part.name!r}", taken)
            for buffer in _buffers(part)
        }
        try:
            if isinstance(part, ScanLoops):
                stages.append(_scanned(part, own[part.buffer], known))
            else:
                reader = _BlockReader(part, own, known, lambda name: _unique(name, taken))
                found, block = reader.read()
                stages += found
                blocks |= {} if block is None else {found[0].name: block}
        except UnsupportedWorkload as reason:
            raise UnsupportedWorkload(f"block {part.name!r}: {reason}") from None
        known |= own
    return FunctionReading(parameters, tuple(stages), blocks)


def _parts_of(function: tirx.PrimFunc) -> tuple[_Nest | ScanLoops, ...]:
    """Parts of ``function``, in order of execution.

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
    return tuple(_part(statement, name) for statement in statements)


def _part(statement: Any, root: str) -> _Nest | ScanLoops:
    inner, name = statement, root
    if isinstance(statement, SBlockRealize) and len(statement.block.iter_vars) == 0:
        inner, name = statement.block.body, str(statement.block.name_hint)
    # A block without variables that is a function's only one is its outermost.
    return scan_loops(inner, name) or _nest(statement, root)


def _nest(statement: Any, root: str = "root") -> _Nest:
    loops, inner = _loops_around(statement)
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
    name = str(inner.block.name_hint)
    for loop in loops:
        if loop.kind != tirx.ForKind.SERIAL or loop.thread_binding is not None:
            raise UnsupportedWorkload(
                f"block {name!r}: loop {str(loop.loop_var.name)!r} is not serial: "
                "it was scheduled already"
            )
    window = _window(inner)
    if window is not None:
        return _Nest(loops, inner, window, window.stores, window.starts)
    stores = _stores(inner.block)
    if stores is None:
        body = inner.block.body
        _check_no_scatter(body, name)
        holds = "an opaque block" if isinstance(body, SBlockRealize) else _kind(body)
        raise UnsupportedWorkload(f"block {name!r} holds {holds}, not one store")
    return _Nest(loops, inner, None, stores, _starts(inner.block))


def _loops_around(statement: Any) -> tuple[tuple[Any, ...], Any]:
    """The loops of a statement, outermost first, and what is inside."""
    loops = []
    while isinstance(statement, tirx.For):
        loops.append(statement)
        statement = statement.body
    return tuple(loops), statement


def _stores(block: Any) -> tuple[Any, ...] | None:
    """Value that a block stores at a point, in terms of what is there before; None of others."""
    if isinstance(block.body, tirx.BufferStore):
        return (block.body,)
    if not isinstance(block.body, tirx.SeqStmt) or not isinstance(block.init, tirx.SeqStmt):
        return None
    bound = {it.var: it.value for it in block.body.seq if isinstance(it, tirx.Bind)}
    stores = []
    for store in block.body.seq:
        if isinstance(store, tirx.BufferStore):
            value = bound.get(store.value) if isinstance(store.value, Var) else None
            value = store.value if value is None else value
            if any(node in bound for node in nodes_in(value, Var)):
                return None
            stores.append(tirx.BufferStore(store.buffer, value, store.indices))
        elif not isinstance(store, tirx.Bind):
            return None
    written = {it.buffer for it in stores}
    return tuple(stores) if len(written) == len(stores) else None


def _starts(block: Any) -> Mapping[Any, Any]:
    """Values that a block stores before it reduces, by buffer."""
    statements = block.init.seq if isinstance(block.init, tirx.SeqStmt) else [block.init]
    return {it.buffer: it for it in statements if isinstance(it, tirx.BufferStore)}


def _window(realize: Any) -> _Nest | None:
    """The block that reduces inside another one; None where there is none."""
    block = realize.block
    loops, inner = _loops_around(block.body)
    if not isinstance(inner, SBlockRealize) or not all(map(_is_plain, (realize, inner))):
        return None
    starts = [it.init for it in (block, inner.block) if it.init is not None]
    if len(starts) != 1 or not isinstance(inner.block.body, tirx.BufferStore):
        return None
    axes = (*block.iter_vars, *inner.block.iter_vars)
    reduces = [it for it in axes if int(it.iter_type) == tirx.IterVar.CommReduce]
    spatial = [it for it in axes if int(it.iter_type) == tirx.IterVar.DataPar]
    # What the inner block starts with would be stored for every part of a window.
    if block.init is None and any(it in reduces for it in block.iter_vars):
        return None
    pairs = zip(inner.block.iter_vars, inner.iter_values, strict=True)
    values = [value for axis, value in pairs if axis in reduces]
    bound = {[loop.loop_var.same_as(value) for value in values].count(True) for loop in loops}
    if len(reduces) + len(spatial) != len(axes) or bound != {1}:
        return None
    first = block if inner.block.init is None else inner.block
    return _Nest(loops, inner, None, (inner.block.body,), _starts(first))


def _is_plain(realize: Any) -> bool:
    predicate, block = realize.predicate, realize.block
    whole = isinstance(predicate, tirx.IntImm) and int(predicate.value) == 1
    return whole and len(block.match_buffers) == 0 and len(block.alloc_buffers) == 0


def _buffers(part: _Nest | ScanLoops) -> tuple[Any, ...]:
    """Buffers that a part writes."""
    return (
        (part.buffer,) if isinstance(part, ScanLoops) else tuple(it.buffer for it in part.stores)
    )


def _written(parts: Sequence[_Nest | ScanLoops]) -> set[Any]:
    written: dict[Any, str] = {}
    for part in parts:
        for buffer in _buffers(part):
            if buffer in written:
                raise UnsupportedWorkload(
                    f"block {part.name!r} writes {_name_of(buffer)!r}, which block "
                    f"{written[buffer]!r} wrote before: several writes"
                )
            written[buffer] = part.name
    return set(written)


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
    except UnsupportedWorkload as reason:
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


def _scanned(loops: ScanLoops, output: Tensor, known: Mapping[Any, Tensor]) -> Stage:
    """The stage that loops are which scan."""
    axes = [Axis(f"i{place}", extent) for place, extent in enumerate(output.shape)]
    axes[loops.along] = evolve(axes[loops.along], kind="scan")
    reader = BodyReader(dict(zip(loops.axes, axes, strict=True)), _named(known))
    return Stage(output, tuple(axes), reader.scalar(loops.value), loops.combiner)


def _named(tensors: Mapping[Any, Tensor]) -> dict[Any, str]:
    return {buffer: tensor.name for buffer, tensor in tensors.items()}


class _BlockReader:
    """Reads one block.

    Args:
        nest: The block and its loops.
        outputs: The tensors that it writes, by buffer.
        known: Those that it may read.
        named: Makes a name that no other tensor has.
    """

    def __init__(
        self,
        nest: _Nest,
        outputs: Mapping[Any, Tensor],
        known: Mapping[Any, Tensor],
        named: Callable[[str], str],
    ) -> None:
        self._nest = nest
        self._block: SBlock = nest.realize.block
        self._scan = continuation(self._block)
        self._outputs = outputs
        self._known = known
        self._named = named
        # What the variables of a block inside another are.
        self._bound: dict[Any, Any] = {}
        self._windows: dict[str, Window] = {}

    def read(self) -> tuple[tuple[Stage, ...], Block | None]:
        """The stages that the block computes, and the block where it is its one stage."""
        self._check_plain()
        found = self._axes()
        order = sorted(found.values(), key=lambda item: item[0])
        axes: dict[Any, Axis | None] = dict.fromkeys(it.var for it in self._block.iter_vars)
        axes.update({variable: axis for variable, (_, axis) in found.items()})
        if self._nest.window is not None:
            axes.update(self._window_axes(self._nest.window, axes))
        if not any(axis is not None and axis.kind == "reduce" for axis in axes.values()):
            return (self._pointwise(axes),), _block(self._nest.name, order, found)
        stages = self._reductions(axes, [axis for _, axis in order])
        is_whole = self._nest.window is None and len(stages) == 1
        return stages, _block(self._nest.name, order, found) if is_whole else None

    def _window_axes(self, window: _Nest, around: Mapping[Any, Axis | None]) -> dict[Any, Axis]:
        """The axes of the block inside, by the loops to which they are bound."""
        reader = BodyReader(around, _named(self._known))
        outer = [axis for axis in around.values() if axis is not None]
        taken = {axis.name for axis in outer}
        loops = {loop.loop_var: loop for loop in window.loops}
        found = {}
        for variable, value in zip(
            window.realize.block.iter_vars, window.realize.iter_values, strict=True
        ):
            self._bound[variable.var] = value
            if isinstance(value, Var) and value in loops:
                name = _unique(str(value.name), taken)
                made = window_of(reader.scalar(loops[value].extent), outer)
                self._windows[name] = made
                found[value] = Axis(name, made.most, "reduce")
        return found

    def _check_plain(self) -> None:
        predicate = self._nest.realize.predicate
        if not isinstance(predicate, tirx.IntImm) or int(predicate.value) != 1:
            raise UnsupportedWorkload("it runs under a predicate (T.where)")
        if len(self._block.match_buffers) != 0 or len(self._block.alloc_buffers) != 0:
            raise UnsupportedWorkload("it matches or allocates buffers")

    def _axes(self) -> dict[Any, tuple[int, Axis]]:
        """Loop position and axis of every block variable, in the block's order."""
        loops = self._nest.loops
        position_of = {loop.loop_var: position for position, loop in enumerate(loops)}
        taken: set[str] = set()
        names = [_unique(str(loop.loop_var.name), taken) for loop in loops]
        axes: dict[Any, tuple[int, Axis]] = {}
        used: set[int] = set()
        values = self._nest.realize.iter_values
        scan = self._scan
        scanned = None if scan is None else self._block.body.indices[scan[0].along]
        for variable, value in zip(self._block.iter_vars, values, strict=True):
            name = str(variable.var.name)
            if not loops and _constant(value) == 0 and _constant(variable.dom.extent) == 1:
                continue  # How a block without loops is written: this is no axis.
            position = position_of.get(value) if isinstance(value, Var) else None
            if position is None or position in used:
                raise UnsupportedWorkload(
                    f"{name!r} is bound to {value}, not to a loop of its own"
                )
            used.add(position)
            extent = _extent(loops[position], name)
            if _constant(variable.dom.min) != 0 or _constant(variable.dom.extent) != extent:
                raise UnsupportedWorkload(f"{name!r} does not range over its whole loop")
            kinds = {tirx.IterVar.DataPar: "spatial", tirx.IterVar.CommReduce: "reduce"}
            if scanned is not None and variable.var.same_as(scanned):
                kinds[tirx.IterVar.Ordered] = "spatial"
            if int(variable.iter_type) not in kinds:
                raise UnsupportedWorkload(
                    f"{name!r} is carried by its loop, neither spatial nor reduced"
                )
            axis = Axis(names[position], extent, kinds[int(variable.iter_type)])
            axes[variable.var] = (position, axis)
        if len(used) != len(loops):
            spare = next(n for position, n in enumerate(names) if position not in used)
            raise UnsupportedWorkload(f"loop {spare!r} is not bound to a variable of the block")
        return axes

    def _spatial_order(self, store: Any, axes: Mapping[Any, Axis | None]) -> tuple[Axis, ...]:
        """The spatial axes in the order in which they index an output."""
        order: list[Axis] = []
        for position, index in enumerate(store.indices):
            variable = self._bound.get(index, index) if isinstance(index, Var) else None
            found = axes.get(variable) if isinstance(variable, Var) else None
            if found is None or found.kind != "spatial" or found in order:
                raise UnsupportedWorkload(
                    f"index {position} of its write is {index}, not a spatial axis of its own"
                )
            order.append(found)
        spatial = [axis for axis in axes.values() if axis is not None and axis.kind == "spatial"]
        missing = [axis.name for axis in spatial if axis not in order]
        if missing:
            raise UnsupportedWorkload(f"spatial axis {missing[0]!r} does not index what it writes")
        output = self._outputs[store.buffer]
        if tuple(axis.extent for axis in order) != output.shape:
            raise UnsupportedWorkload(f"it writes a part of {output.name!r} only")
        return tuple(order)

    def _pointwise(self, axes: Mapping[Any, Axis | None]) -> Stage:
        """The stage of a block that reduces nothing."""
        if self._nest.window is not None or len(self._nest.stores) != 1 or self._nest.starts:
            raise UnsupportedWorkload("it has T.init() and reduces nothing")
        (store,) = self._nest.stores
        spatial, output = self._spatial_order(store, axes), self._outputs[store.buffer]
        reader = BodyReader(axes, _named(self._known))
        if self._scan is not None and not reads(self._scan[1], store.buffer):
            found, value = self._scan
            kinds = {found.along: "scan"}
            own = [evolve(it, kind=kinds.get(at, it.kind)) for at, it in enumerate(spatial)]
            stage = Stage(output, tuple(own), reader.scalar(value), found.combiner)
            check_start(stage, _constant_of(found.start))
            return stage
        if reads(store.value, store.buffer):
            raise UnsupportedWorkload(f"it reads what it writes, {output.name!r}: loop-carried")
        return Stage(output, spatial, reader.scalar(store.value))

    def _reductions(
        self, axes: Mapping[Any, Axis | None], by_loop: Sequence[Axis]
    ) -> tuple[Stage, ...]:
        """The stages of a block that reduces.

        Args:
            axes: By variable.
            by_loop: Those of the loops around the block, outermost first.
        """
        stores = self._nest.stores
        if not self._nest.starts:
            raise UnsupportedWorkload("it reduces without T.init()")
        self._check_simultaneous()
        spatial = [self._spatial_order(store, axes) for store in stores]
        reduced = [axis for axis in axes.values() if axis is not None and axis.kind == "reduce"]
        if len(stores) > 1:
            # Of several tensors one may depend on the order.
            reduced = [axis for axis in by_loop if axis.kind == "reduce"]
        if len(set(spatial)) > 1:
            raise UnsupportedWorkload("it writes its tensors at different places")
        tensors = {**self._known, **self._outputs}
        differ = any(window.extent is not None for window in self._windows.values())
        reader = BodyReader(axes, _named(tensors), self._bound, is_guarded=differ)
        outputs = tuple(self._outputs[store.buffer] for store in stores)
        reduction = Reduction(
            outputs,
            (*spatial[0], *reduced),
            tuple(reader.scalar(store.value) for store in stores),
            tuple(self._start(store) for store in stores),
        )
        reduction = within_windows(reduction, self._windows)
        return stages_of(reduction, {it.name: it for it in tensors.values()}, self._named)

    def _start(self, store: Any) -> Constant:
        """Value that is stored before a reduction."""
        start = self._nest.starts.get(store.buffer)
        if start is None:
            raise UnsupportedWorkload(
                "T.init() does not store a constant to what the block writes"
            )
        pairs = zip(start.indices, store.indices, strict=True)
        if any(not self._bound.get(a, a).same_as(self._bound.get(b, b)) for a, b in pairs):
            raise UnsupportedWorkload(
                "T.init() does not store a constant to what the block writes"
            )
        return _constant_of(start.value)

    def _check_simultaneous(self) -> None:
        """Check that nothing is computed from what was stored at the same point.

        Raises:
            UnsupportedWorkload: it is.
        """
        body = self._block.body
        written: list[Any] = []
        for statement in body.seq if isinstance(body, tirx.SeqStmt) else ():
            for node in nodes_in(statement.value, TensorLoad):
                if any(map(node.source.same_as, written)):
                    raise UnsupportedWorkload(
                        f"{str(node.source.name)!r} is read after it was stored to"
                    )
            if isinstance(statement, tirx.BufferStore):
                written.append(statement.buffer)


def _block(name: str, by_loop: Sequence[Any], by_variable: Mapping[Any, Any]) -> Block:
    return Block(
        name,
        tuple(axis.name for _, axis in by_loop),
        tuple(axis.name for _, axis in by_variable.values()),
    )


def _constant_of(value: Any) -> Constant:
    if not isinstance(value, (tirx.IntImm, tirx.FloatImm)):
        raise UnsupportedWorkload("T.init() does not store a constant to what the block writes")
    dtype = dtype_of(value)
    return Constant(bool(value.value) if dtype == "bool" else value.value, dtype)


def _check_no_scatter(statement: Any, name: str) -> None:
    """Refuse a block whose loops store where data says: nothing proves that places differ."""
    for store in _bare_stores(statement):
        for position, index in enumerate(store.indices):
            if nodes_in(index, TensorLoad):
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
        raise UnsupportedWorkload(f"the loop of {name!r} has a dynamic extent: {loop.extent}")
    if _constant(loop.min) != 0:
        raise UnsupportedWorkload(f"the loop of {name!r} does not start at 0")
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


_NEUTRAL = {"add": 0, "mul": 1}


@frozen(eq=False)
class ScanLoops:
    """Loops that scan a tensor, over its dimensions.

    Attributes:
        name: The block that they stand in.
        buffer: What they store to.
        axes: A variable for each of its dimensions.
        along: The dimension along which they continue.
        combiner: By what.
        value: What each element adds of its own.
    """

    name: str
    buffer: Any
    axes: tuple[Any, ...]
    along: int
    combiner: str
    value: Any


def scan_loops(statement: Any, name: str) -> ScanLoops | None:
    """Scan in ``statement``; None of other statements.

    Args:
        statement: What stands in a function or in a block without variables.
        name: Of the block.
    """
    if not _scans(statement):
        return None
    shape = tuple(map(int, statement.body.seq[0].buffer.shape))
    made = (_in_dimensions(statement, shape, along, name) for along in range(len(shape)))
    return next((it for it in made if it is not None), None)


def _scans(statement: Any) -> bool:
    """Tell if a loop over sequences stores the first element of each, and then continues it."""
    if not _is_counted(statement) or not isinstance(statement.body, tirx.SeqStmt):
        return False
    parts = list(statement.body.seq)
    if len(parts) != 2 or not isinstance(parts[0], tirx.BufferStore) or not _is_counted(parts[1]):
        return False
    (first, loop), store = parts, parts[1].body
    if not isinstance(store, tirx.BufferStore) or not store.buffer.same_as(first.buffer):
        return False
    if str(statement.loop_var.ty.dtype) != str(loop.loop_var.ty.dtype):
        return False
    known = all(isinstance(it, tirx.IntImm) for it in store.buffer.shape)
    if _combiner(store.value) not in _NEUTRAL or not known:
        return False
    previous, value = store.value.a, store.value.b
    own = isinstance(previous, TensorLoad) and previous.source.same_as(store.buffer)
    return own and not reads(value, store.buffer) and not reads(first.value, store.buffer)


def _combiner(value: Any) -> str:
    """The name of the operator that a value is computed by; empty where it combines nothing."""
    return next((it for it, kind in COMBINE.items() if isinstance(value, kind)), "")


def _is_counted(statement: Any) -> bool:
    """Return whether it is a loop over a known number of values from 0, serial or parallel."""
    return (
        isinstance(statement, tirx.For)
        and statement.kind in (tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL)
        and isinstance(statement.extent, tirx.IntImm)
        and isinstance(statement.min, tirx.IntImm)
        and int(statement.min) == 0
        and (statement.step is None or int(statement.step) == 1)
    )


def _in_dimensions(
    statement: Any, shape: tuple[int, ...], along: int, name: str
) -> ScanLoops | None:
    """The loops over the dimensions of the result; None if they do not scan ``along`` one."""
    first, loop = statement.body.seq
    store, sequences, step = loop.body, statement.loop_var, loop.loop_var
    others = math.prod(extent for place, extent in enumerate(shape) if place != along)
    continued = int(loop.extent)
    if (int(statement.extent), continued) != (others, shape[along] - 1):
        return None
    dtype = str(sequences.ty.dtype)
    axes = [tirx.Var(f"v{place}", dtype) for place in range(len(shape))]
    analyzer = Analyzer()
    for axis, extent in zip(axes, shape, strict=True):
        analyzer.bind(axis, Range.from_min_extent(0, extent))
    analyzer.bind(step, Range.from_min_extent(0, max(1, continued)))
    zero = tirx.const(0, dtype)
    sequence: Any = zero
    for place, (axis, extent) in enumerate(zip(axes, shape, strict=True)):
        sequence = sequence if place == along else sequence * extent + axis

    def moved(node: Any) -> Any:
        return analyzer.simplify(at(node, [sequences], [sequence]))

    def are(indices: Sequence[Any], position: Any) -> bool:
        wanted = [position if axis is axes[along] else axis for axis in axes]
        pairs = zip(indices, wanted, strict=True)
        return all(analyzer.can_prove_equal(moved(one), other) for one, other in pairs)

    # A sequence of one element has no other that is continued.
    continues = continued == 0 or (
        are(store.indices, step + 1) and are(store.value.a.indices, step)
    )
    if not continues or not are(first.indices, zero):
        return None
    combiner, added = _combiner(store.value), store.value.b
    start = tirx.const(_NEUTRAL[combiner], str(store.buffer.dtype))
    own, position = moved(first.value), axes[along]
    value = moved(at(added, [step], [position - 1]))
    if structural_equal(own, start):
        # Without the element itself: the first has none before it.
        if continued > 1:
            value = at(moved(added), [step], [position - 1])
        value = tirx.if_then_else(position >= 1, value, start)
    elif not structural_equal(analyzer.simplify(at(value, [position], [zero])), own):
        return None
    return ScanLoops(name, store.buffer, tuple(axes), along, combiner, value)

"""From a workload to the text of an MLIR module: structured operations on tensors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from autotune.ir.expressions import AffineForm, Load, affine_form
from autotune.ir.workloads import Axis, Padding, Stage, Tensor, Workload, padding_of_stage
from autotune_mlir.entry import KERNEL
from autotune_mlir.scalar_emit import BodyWriter, literal, memory_type, value_type

__all__ = [
    "INIT",
    "STAGE",
    "identity_of",
    "is_operand",
    "iterator_axes",
    "on_tensors",
    "operand_names",
    "payload",
    "quoted",
]

STAGE = "autotune.stage"
"""Attribute of the operation that computes a stage: the stage's name."""

INIT = "autotune.init"
"""Attribute of what fills a reduction's result with the identity: the stage's name."""


def payload(workload: Workload) -> str:
    """The text of a module whose one function, called ``kernel``, computes ``workload``.

    Parameters are buffers: the inputs and then the outputs, in the workload's order. Every stage
    is one operation on tensors that carries the attribute ``autotune.stage``:

    - a tensor surrounded by a constant (:func:`~autotune.ir.workloads.padding_of_stage`) is a
      ``tensor.pad``;
    - everything else is a ``linalg.generic`` over :func:`iterator_axes`. Its operands are loads
      inside their tensors at axes, shifted axes and constants, and those of reductions at any
      affine index; others are ``tensor.extract`` in its body, at indices clamped to the tensor.
      That of a scan has two results, of which the second is the stage's.

    Raises:
        UnsupportedWorkload: MLIR has no form for a part of it.
    """
    return _Program(workload).text()


def on_tensors(workload: Workload) -> str:
    """The text of a module as :func:`payload` has it, whose function takes and returns tensors."""
    return _Program(workload).text(on_tensors=True)


def iterator_axes(stage: Stage) -> tuple[Axis, ...]:
    """The axes of a stage in the order of the loops of its operation: spatial, then reduce."""
    return (*stage.spatial_axes, *stage.reduce_axes)


def operand_names(workload: Workload) -> dict[str, tuple[str, ...]]:
    """The tensors that the operation of each stage reads, in the order of its operands.

    Tensors that are read in several ways are several operands; those that are read element by
    element are none. An empty name is of the operand that only gives a window's extents.

    Args:
        workload: Any; the answer is about the program that :func:`payload` makes of it.
    """
    names: dict[str, tuple[str, ...]] = {}
    for stage in workload.stages:
        if padding_of_stage(stage, workload) is not None:
            names[stage.name] = stage.reads
            continue
        numbers = {axis.name: number for number, axis in enumerate(iterator_axes(stage))}
        windows = _windows(stage, workload, numbers)
        known = [results for _, _, results in windows.values()]
        extra = ("",) if _unseen(stage, numbers, known) else ()
        names[stage.name] = (*(load.tensor for load in windows), *extra)
    return names


def is_operand(stage: Stage, load: Load, shape: Sequence[int]) -> bool:
    """Tell if an operand delivers what a load reads of a tensor: else it is extracted."""
    numbers = {axis.name: number for number, axis in enumerate(iterator_axes(stage))}
    return _read_window(stage, load, shape, numbers) is not None


@frozen
class _Operand:
    """An operand of a structured operation.

    Attributes:
        value: SSA name of the tensor.
        type: Its type.
        map: Results of its indexing map.
        argument: SSA name of its element in the body.
        element: Type of the element.
    """

    value: str
    type: str
    map: tuple[str, ...]
    argument: str
    element: str


def quoted(name: str) -> str:
    """A name as a string of MLIR, which knows no other escapes than these."""
    return json.dumps(name, ensure_ascii=False)


def _tensor_type(shape: Sequence[int], dtype: str) -> str:
    return f"tensor<{'x'.join([*map(str, shape), memory_type(dtype)])}>"


def _type_of(tensor: Tensor) -> str:
    return _tensor_type(tensor.shape, tensor.dtype)


def _buffer_type(tensor: Tensor) -> str:
    return f"memref<{'x'.join([*map(str, tensor.shape), memory_type(tensor.dtype)])}>"


def _map(dims: int, results: Iterable[str]) -> str:
    return f"affine_map<({', '.join(f'd{d}' for d in range(dims))}) -> ({', '.join(results)})>"


class _Program:
    """The lines of one function."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._values: dict[str, str] = {}
        self._lines: list[str] = []
        self._count = 0

    def text(self, *, on_tensors: bool = False) -> str:
        """The whole module.

        Args:
            on_tensors: Whether its function takes tensors and returns others.
        """
        workload = self._workload
        outputs = [workload.tensors[name] for name in workload.outputs]
        taken = workload.inputs if on_tensors else (*workload.inputs, *outputs)
        of = _type_of if on_tensors else _buffer_type
        parameters = ", ".join(
            f"%arg{position}: {of(tensor)}" for position, tensor in enumerate(taken)
        )
        for position, tensor in enumerate(workload.inputs):
            self._values[tensor.name] = f"%arg{position}"
            if not on_tensors:
                kinds = f"{_buffer_type(tensor)} to {_type_of(tensor)}"
                text = f"bufferization.to_tensor %arg{position} restrict : {kinds}"
                self._values[tensor.name] = self._operation(text)
        for stage in workload.stages:
            self._values[stage.name] = self._stage(stage)
        returned = [self._values[tensor.name] for tensor in outputs]
        kinds = ", ".join(map(_type_of, outputs))
        if on_tensors:
            head, end = f"({parameters}) -> ({kinds})", f"return {', '.join(returned)} : {kinds}"
        else:
            head, end = f"({parameters}) attributes {{llvm.emit_c_interface}}", "return"
            places = enumerate(zip(returned, outputs, strict=True), len(workload.inputs))
            for position, (value, tensor) in places:
                self._lines.append(
                    f"bufferization.materialize_in_destination {value} in restrict writable "
                    f"%arg{position} : ({_type_of(tensor)}, {_buffer_type(tensor)}) -> ()"
                )
        body = "\n".join(f"    {line}" for line in (*self._lines, end))
        return f"module {{\n  func.func @{KERNEL}{head} {{\n{body}\n  }}\n}}\n"

    def _operation(self, text: str, results: int = 1) -> str:
        name = f"%{self._count}"
        self._count += 1
        self._lines.append(f"{name}{'' if results == 1 else f':{results}'} = {text}")
        return name

    def _stage(self, stage: Stage) -> str:
        padding = padding_of_stage(stage, self._workload)
        return self._generic(stage) if padding is None else self._pad(stage, padding)

    def _pad(self, stage: Stage, padding: Padding) -> str:
        tensor = self._workload.tensors[padding.tensor]
        inner = self._slice(tensor, padding.offsets, padding.sizes)
        kind = memory_type(tensor.dtype)
        value = self._constant(padding.value.value, tensor.dtype)
        indices = ", ".join(f"%i{d}: index" for d in range(len(tensor.shape)))
        return self._operation(
            f"tensor.pad {inner} low{list(padding.low)} high{list(padding.high)} {{\n"
            f"    ^bb0({indices}):\n"
            f"      tensor.yield {value} : {kind}\n"
            f"    }} {{{STAGE} = {quoted(stage.name)}}} : "
            f"{_tensor_type(padding.sizes, tensor.dtype)} to "
            f"{_tensor_type(stage.output.shape, tensor.dtype)}"
        )

    def _constant(self, value: float | int | bool, dtype: str) -> str:
        """A constant in the form that memory holds."""
        if dtype == "bool":
            value, dtype = int(bool(value)), "int8"
        return self._operation(f"arith.constant {literal(value, dtype)} : {value_type(dtype)}")

    def _slice(self, tensor: Tensor, offsets: Sequence[int], sizes: Sequence[int]) -> str:
        """A box of a tensor; the tensor itself when it is all of it."""
        value = self._values[tensor.name]
        if tuple(sizes) == tensor.shape:
            return value
        return self._operation(
            f"tensor.extract_slice {value}{list(offsets)} {list(sizes)} {[1] * len(sizes)} : "
            f"{_tensor_type(tensor.shape, tensor.dtype)} to {_tensor_type(sizes, tensor.dtype)}"
        )

    def _generic(self, stage: Stage) -> str:
        axes = iterator_axes(stage)
        numbers = {axis.name: number for number, axis in enumerate(axes)}
        reads = self._reads(stage, numbers)
        operands = [*reads.values(), *self._window(stage, numbers, reads.values())]
        results = self._results(stage, numbers)
        tensors = {
            name: (value, self._workload.tensors[name].shape, self._workload.tensors[name].dtype)
            for name, value in self._values.items()
        }
        arguments = {load: operand.argument for load, operand in reads.items()}
        writer = BodyWriter(stage.name, stage.extents, numbers, arguments.get, tensors)
        body = _write_body(stage, writer)
        name = self._operation(
            _generic_text(stage.name, axes, operands, results, body), len(results)
        )
        return name if len(results) == 1 else f"{name}#{len(results) - 1}"

    def _results(self, stage: Stage, numbers: Mapping[str, int]) -> list[_Operand]:
        """Buffers that the operation writes into; they hold the identity first.

        A scan also has, as its first result, what each element continues: it has all dimensions
        but the one that is scanned along, which is therefore iterated in its order.
        """
        axes, scanned = stage.spatial_axes, stage.scan_axis
        kept = [axis for axis in axes if axis is not scanned]
        written = [(kept, "%out"), *([] if scanned is None else [(axes, "%all")])]
        return [
            _Operand(
                self._destination(stage, [axis.extent for axis in own], name == "%out"),
                _tensor_type([axis.extent for axis in own], stage.output.dtype),
                tuple(f"d{numbers[axis.name]}" for axis in own),
                name,
                memory_type(stage.output.dtype),
            )
            for own, name in written
        ]

    def _destination(self, stage: Stage, shape: Sequence[int], begins: bool) -> str:
        """An empty tensor, or one that holds the identity, where a result begins with that."""
        output = stage.output
        kind = _tensor_type(shape, output.dtype)
        empty = self._operation(f"tensor.empty() : {kind}")
        if stage.combiner is None or not begins:
            return empty
        value = self._constant(identity_of(stage), output.dtype)
        return self._operation(
            f"linalg.fill {{{INIT} = {quoted(stage.name)}}} "
            f"ins({value} : {memory_type(output.dtype)}) outs({empty} : {kind}) -> {kind}"
        )

    def _reads(self, stage: Stage, numbers: Mapping[str, int]) -> dict[Load, _Operand]:
        """The loads that operands deliver."""
        reads: dict[Load, _Operand] = {}
        for load, window in _windows(stage, self._workload, numbers).items():
            tensor, (offsets, sizes, results) = self._workload.tensors[load.tensor], window
            reads[load] = _Operand(
                self._slice(tensor, offsets, sizes),
                _tensor_type(sizes, tensor.dtype),
                results,
                f"%in{len(reads)}",
                memory_type(tensor.dtype),
            )
        return reads

    def _window(
        self, stage: Stage, numbers: Mapping[str, int], reads: Iterable[_Operand]
    ) -> list[_Operand]:
        """An operand that is never read, of the extents that no other operand has.

        The extents of a structured operation are those of its operands; what is reduced over a
        window of one operand, as in pooling, appears in none of them.
        """
        missing = _unseen(stage, numbers, [operand.map for operand in reads])
        if not missing:
            return []
        kind = _tensor_type([axis.extent for axis in missing], stage.output.dtype)
        empty = self._operation(f"tensor.empty() : {kind}")
        results = tuple(f"d{numbers[axis.name]}" for axis in missing)
        return [_Operand(empty, kind, results, "%window", memory_type(stage.output.dtype))]


_Window = tuple[list[int], list[int], tuple[str, ...]]


def _windows(stage: Stage, workload: Workload, numbers: Mapping[str, int]) -> dict[Load, _Window]:
    """The boxes of the loads that operands deliver, in the order of the operands."""
    found = {
        load: _read_window(stage, load, workload.tensors[load.tensor].shape, numbers)
        for load in dict.fromkeys(stage.loads)
    }
    return {load: window for load, window in found.items() if window is not None}


def _unseen(
    stage: Stage, numbers: Mapping[str, int], maps: Iterable[tuple[str, ...]]
) -> list[Axis]:
    """Axes of a reduction that are no operand's dimension."""
    known = {result for results in maps for result in results}
    return [axis for axis in stage.reduce_axes if f"d{numbers[axis.name]}" not in known]


def _read_window(
    stage: Stage, load: Load, shape: Sequence[int], numbers: Mapping[str, int]
) -> _Window | None:
    """The box of a tensor that a load reads, and the map of an operand that is this box.

    A dimension that is read at a single axis, or at a constant, is cut to what is read of it: the
    extents of a structured operation follow from such dimensions. Sums of axes,
    strides, and more dimensions than there are axes are operands of reductions, as in
    convolutions; elsewhere an operation that has them would not become vectors, and one that
    extracts does.

    Returns:
        Offsets, sizes and results of the map; None when the element is to be extracted.
    """
    if not stage.reduce_axes and len(shape) > len(stage.axes):
        return None
    offsets, sizes, results = [], [], []
    for index, extent in zip(load.indices, shape, strict=True):
        form = affine_form(index)
        if form is None:
            return None
        low, high = form.bounds(stage.extents)
        if low < 0 or high >= extent:
            return None
        if any(coefficient < 0 for coefficient in form.coefficients.values()):
            # Tiles of operands that are read backwards are beyond MLIR.
            return None
        if list(form.coefficients.values()) in ([], [1]):
            offsets.append(form.constant)
            sizes.append(high - low + 1)
            results.append(next((f"d{numbers[name]}" for name in form.coefficients), "0"))
            continue
        if not stage.reduce_axes:
            return None
        offsets.append(0)
        sizes.append(extent)
        results.append(_sum(form, numbers))
    axes = [result for result in results if result != "0"]
    if not stage.reduce_axes and len(set(axes)) < len(axes):
        return None
    return offsets, sizes, tuple(results)


def _sum(form: AffineForm, numbers: Mapping[str, int]) -> str:
    """An affine form as a result of a map."""
    terms = [
        f"d{numbers[name]}" + ("" if scale == 1 else f" * {scale}")
        for name, scale in form.coefficients.items()
    ]
    return " + ".join([*terms, str(form.constant)] if form.constant else terms)


def identity_of(stage: Stage) -> float | int:
    """The initial value of a reduction, in its storage type."""
    if stage.output.dtype == "bool":
        return 0 if stage.combiner in ("add", "max") else 1
    return stage.identity()


def _write_body(stage: Stage, writer: BodyWriter) -> list[str]:
    """The lines of the body, of which the last one yields the results."""
    dtype = stage.output.dtype
    results = 1 if stage.scan_axis is None else 2
    value = writer.scalar(stage.body)
    if stage.combiner is not None and dtype == "bool":
        # On what memory holds: MLIR makes vectors of reductions that are one operation.
        operation = "ori" if stage.combiner in ("add", "max") else "andi"
        operands = f"%out, {writer.stored(value, dtype)}"
        result = writer.operation(f"arith.{operation} {operands} : {memory_type(dtype)}")
        return [*writer.lines, _yield(result, dtype, results)]
    if stage.combiner is not None:
        value = writer.combine(
            stage.combiner, writer.loaded("%out", dtype), writer.cast(value, dtype)
        )
    result = writer.stored(value, dtype)
    return [*writer.lines, _yield(result, dtype, results)]


def _yield(value: str, dtype: str, results: int) -> str:
    values, kinds = ([it] * results for it in (value, memory_type(dtype)))
    return f"linalg.yield {', '.join(values)} : {', '.join(kinds)}"


def _generic_text(
    stage: str,
    axes: Sequence[Axis],
    operands: Sequence[_Operand],
    results: Sequence[_Operand],
    body: Sequence[str],
) -> str:
    everything = [*operands, *results]
    maps = ", ".join(_map(len(axes), operand.map) for operand in everything)
    kinds = {"spatial": '"parallel"', "reduce": '"reduction"', "scan": '"reduction"'}
    iterators = ", ".join(kinds[axis.kind] for axis in axes)
    reads, writes = (
        f"({', '.join(it.value for it in some)} : {', '.join(it.type for it in some)})"
        for some in (operands, results)
    )
    arguments = ", ".join(f"{item.argument}: {item.element}" for item in everything)
    lines = "\n".join(f"      {line}" for line in body)
    made = ", ".join(it.type for it in results)
    return (
        f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}} "
        f"{f'ins{reads} ' if operands else ''}outs{writes} "
        f"attrs = {{{STAGE} = {quoted(stage)}}} {{\n"
        f"    ^bb0({arguments}):\n"
        f"{lines}\n"
        f"    }} -> {f'({made})' if len(results) > 1 else made}"
    )

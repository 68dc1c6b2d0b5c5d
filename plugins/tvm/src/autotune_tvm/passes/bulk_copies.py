"""Copies of boxes of a tensor to shared memory, by the device's copy engine (TMA, from sm_90 on).

One thread of a block asks for the boxes of an iteration. Each stage has a barrier in shared memory
(``mbarrier``) that counts the bytes: threads wait for its phase, whose parity alternates with the
rounds of stages. What the engine writes and ``wgmma`` reads, both do by the asynchronous proxy, so
no thread fences it; only barriers that have just been made are.

The engine reads the form of a tensor from a descriptor of 128 bytes that the driver encodes. Until
kernels are apart, a call holds the tensor's address and a text that says what is wanted; then
:func:`with_tensor_maps` gives the kernel a further parameter for each descriptor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve
from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.ir import Call, IRModule, PointerType, Range, TensorLoad
from tvm.s_tir import MatchBufferRegion, SBlock, SBlockRealize
from tvm.tirx import BufferRegion
from tvm_ffi import structural_map

from autotune.backends import InvalidSchedule, KernelLaunch, TensorMap
from autotune.ir.element_types import element_type
from autotune.lower.instructions.fetches import BULK_COPIES
from autotune.sketches.copy_engine import (
    MOST_BOX_EXTENT,
    SWIZZLED_ALIGNMENT,
    VECTOR_BYTES,
)
from autotune_tvm.passes.statements import at, nodes_in, substituted, with_fields

__all__ = [
    "BULK",
    "bulk_begin",
    "bulk_fetch",
    "bulk_wait",
    "with_tensor_maps",
]

BULK = "autotune.bulk"
"""Annotation of blocks that copy for the engine: elements of a row, and extents of the region."""

_COPY = "autotune_bulk_copy"
# The pattern of a swizzled row repeats after so many.
_ROWS = 8


def bulk_begin(stages: int, copies: int) -> Any:
    """Make the barriers of all stages, for so many operands each; a barrier of threads follows."""
    return _called("autotune_bulk_begin", stages, copies)


def bulk_wait(stage: Any, parity: Any) -> Any:
    """Wait until everything is there that was asked for in a stage's round of this parity."""
    return _called("autotune_bulk_wait", tirx.Cast("int32", stage), tirx.Cast("int32", parity))


def bulk_fetch(part: Any, buffer: Any, values: Mapping[Any, Any], stage: Any) -> Any:
    """Requests of one thread for what threads would copy together.

    Args:
        part: The copy as the schedule has it: loops, one of them over threads, and a block that
            stores one element.
        buffer: What it fills, with a dimension for stages in front.
        values: The one variable around that moves what is copied, and its value.
        stage: The stage that is filled.

    Raises:
        InvalidSchedule: it is something else.
    """
    loops, node = [], part
    while isinstance(node, tirx.For):
        loops.append(node)
        node = node.body
    threads = [loop for loop in loops if loop.thread_binding is not None]
    if not isinstance(node, SBlockRealize) or len(threads) != 1:
        raise InvalidSchedule(f"what is copied in bulk is no copy of threads: {part}")
    block = node.block
    row, *region = (int(extent) for extent in block.annotations[BULK])
    load = _loaded(block)
    coordinates = _corner(node, loops, values, load.indices)
    zero = {name: tirx.const(0, str(name.ty.dtype)) for name in values}
    place = _corner(node, loops, zero, block.body.indices)
    width = VECTOR_BYTES // element_type(str(load.source.dtype)).bytes
    extents = [region[-1] // row, *region[:-1], row // width, width]
    written = BufferRegion(
        buffer,
        [
            Range.from_min_extent(start, tirx.IntImm(str(start.ty.dtype), extent))
            for start, extent in zip([stage, *place], [1, *extents], strict=True)
        ],
    )
    filled = tirx.decl_buffer(
        [1, *extents],
        str(buffer.dtype),
        str(buffer.name),
        strides=[tirx.Var(f"s{level}", stage.ty) for level in range(len(extents) + 1)],
        scope=str(buffer.scope()),
        offset_factor=1,
    )
    calls = _requests(load.source, coordinates, filled, (row, region), stage)
    whole = BufferRegion(load.source, [Range(0, extent) for extent in load.source.shape])
    first = tirx.Var("thread", threads[0].loop_var.ty)
    asked = tirx.IfThenElse(first.equal(tirx.const(0, str(first.ty.dtype))), calls, None)
    made = SBlock(
        *([], [whole], [written], str(block.name_hint), asked, None, []),
        [MatchBufferRegion(filled, written)],
    )
    body = SBlockRealize([], True, made)
    return with_fields(threads[0], loop_var=first, body=body, annotations={})


def _loaded(block: Any) -> Any:
    """Value that a block copies: an element of a tensor, or zero beyond its ends."""
    found = nodes_in(block.body.value, TensorLoad)
    if len(found) != 1:
        raise InvalidSchedule(f"what is copied in bulk is no element of one tensor: {block.body}")
    return found[0]


def _corner(
    realize: Any, loops: Sequence[Any], values: Mapping[Any, Any], indices: Sequence[Any]
) -> list[Any]:
    """Corner of a copy: indices of its block at which all of its own loops begin."""
    names = [*values, *(loop.loop_var for loop in loops)]
    zeros = [tirx.const(0, str(loop.loop_var.ty.dtype)) for loop in loops]
    placed = [at(value, names, [*values.values(), *zeros]) for value in realize.iter_values]
    own = [item.var for item in realize.block.iter_vars]
    return [at(index, own, placed) for index in indices]


def _requests(
    source: Any,
    corner: Sequence[Any],
    filled: Any,
    shape: tuple[int, list[int]],
    stage: Any,
) -> Any:
    """Requests for all boxes of a region.

    Args:
        source: The tensor.
        corner: Where the region begins.
        filled: The part of shared memory, as ``[1, planes, the other dimensions, vectors of
            a row, elements of a vector]``.
        shape: Elements of a row, and extents of the region.
        stage: The stage.
    """
    row, region = shape
    size = element_type(str(source.dtype)).bytes
    *outer, rows, last = region
    if any(extent != 1 for extent in outer):
        raise InvalidSchedule(f"what is copied in bulk is no matrix: {region}")
    if rows % _ROWS:
        raise InvalidSchedule(f"{rows} rows are not copied in bulk: no multiple of {_ROWS}")
    height = max(it for it in range(_ROWS, MOST_BOX_EXTENT + 1, _ROWS) if rows % it == 0)
    wanted = {
        "dtype": str(source.dtype),
        "shape": [int(extent) for extent in source.shape],
        "box": [*outer, height, row],
    }
    begin = tirx.address_of(tirx.BufferLoad(source, [0] * len(region)))
    number = tirx.Cast("int32", stage)
    calls = [_called("autotune_bulk_expect", number, math.prod(region) * size)]
    for plane in range(last // row):
        for down in range(0, rows, height):
            to = tirx.BufferLoad(filled, [0, plane, *(0 for _ in outer), down, 0, 0])
            place = [*corner[:-2], corner[-2] + down, corner[-1] + plane * row]
            calls.append(
                _called(
                    f"{_COPY}_{len(region)}",
                    tirx.address_of(to),
                    begin,
                    json.dumps(wanted),
                    number,
                    _ROWS * row * size,
                    *(tirx.Cast("int32", index) for index in reversed(place)),
                )
            )
    return tirx.SeqStmt(calls)


def with_tensor_maps(
    kernels: IRModule, launches: Sequence[KernelLaunch]
) -> tuple[IRModule, tuple[KernelLaunch, ...]]:
    """Kernels whose copies in bulk have descriptors of tensors, and launches that pass these.

    Args:
        kernels: Functions of the device.
        launches: How they are launched.
    """
    functions, maps = {}, dict[str, tuple[TensorMap, ...]]()
    arguments = {launch.kernel: launch.arguments for launch in launches}
    for variable, function in kernels.functions.items():
        name = variable.name_hint
        functions[variable], maps[name] = _with_maps(function, arguments.get(name, ()))
    made = (evolve(launch, maps=maps.get(launch.kernel, ())) for launch in launches)
    return IRModule(functions, attrs=kernels.attrs), tuple(made)


def _with_maps(function: Any, arguments: Sequence[str]) -> tuple[Any, tuple[TensorMap, ...]]:
    known: dict[TensorMap, Any] = {}
    pointers = {it.buffer: it.data for it in nodes_in(function.body, tirx.DeclBuffer)}

    def described(call: Any) -> Any:
        name = getattr(next(iter(call.args), None), "value", "")
        if not isinstance(name, str) or not name.startswith(_COPY):
            return call
        named, to, begin, text, *others = call.args
        pointer = pointers[begin.args[0].source]
        (place,) = (n for n, it in enumerate(function.params) if it.same_as(pointer))
        wanted = json.loads(str(text.value))
        found = TensorMap(
            *(arguments[place], wanted["dtype"]), tuple(wanted["shape"]), tuple(wanted["box"])
        )
        if found not in known:
            kind = PointerType(tirx.TensorMapType())
            known[found] = tirx.Var(f"{found.buffer}_map", kind)
        given = [named, to, tirx.address_of(known[found]), *others]
        return Call(call.op, given, ret_ty=call.ty, attrs=call.attrs)

    body = structural_map(function.body, (Call, described))
    if not known:
        return function, ()
    params = [*function.params, *known.values()]
    made = tirx.PrimFunc(
        params, _with_aligned_memory(body), function.ret_type, attrs=function.attrs
    )
    return made, tuple(known)


def _with_aligned_memory(body: Any) -> Any:
    """A kernel whose shared memory that is asked for begins where swizzled buffers may."""
    aligned = {
        plain: tirx.decl_buffer(
            plain.shape,
            str(plain.dtype),
            str(plain.name),
            scope="shared.dyn",
            data_alignment=SWIZZLED_ALIGNMENT,
        )
        for plain in (it.buffer for it in nodes_in(body, tirx.AllocBuffer))
        if str(plain.scope()) == "shared.dyn"
    }

    def replaced(node: Any) -> Any:
        return tirx.AllocBuffer(aligned[node.buffer]) if node.buffer in aligned else node

    body = structural_map(body, (tirx.AllocBuffer, replaced))
    return substituted(body, list(aligned), list(aligned.values()))


def _called(name: str, *arguments: Any) -> Any:
    return tirx.Evaluate(cuda_func_call(name, *arguments, source_code=BULK_COPIES))

"""Tensors put together of others mean what numpy's assignments say, whatever overlaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import frozen
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.importing.reading import read_text
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.backends import BuildRequest
from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import random_inputs, reference_outputs
from autotune.targets import Target
from autotune.testing.programs import check_program

Array = NDArray[Any]


@frozen
class Box:
    """A part of a tensor.

    Attributes:
        offsets: Where it begins.
        sizes: Its extents.
        dropped: Dimensions of extent 1 that the tensor inserted there does not have.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    dropped: frozenset[int]

    @property
    def kind(self) -> str:
        """The type of what is inserted."""
        kept = [size for at, size in enumerate(self.sizes) if at not in self.dropped]
        return tensor(kept)

    @property
    def place(self) -> str:
        """Offsets, sizes and strides as MLIR writes them."""
        return f"{list(self.offsets)} {list(self.sizes)} {[1] * len(self.sizes)}"

    def of(self, array: Array) -> Array:
        """The part, as a view."""
        ranges = zip(self.offsets, self.sizes, strict=True)
        return array[tuple(slice(first, first + size) for first, size in ranges)]


def tensor(shape: Any) -> str:
    """The type of a tensor of float32."""
    return f"tensor<{'x'.join([*map(str, shape), 'f32'])}>"


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> Box:
    """Any box of a shape."""
    offsets, sizes = [], []
    for extent in shape:
        offsets.append(draw(st.integers(0, extent - 1)))
        sizes.append(draw(st.integers(1, extent - offsets[-1])))
    ones = [at for at, size in enumerate(sizes) if size == 1]
    dropped = draw(st.sets(st.sampled_from(ones))) if ones else set()
    return Box(tuple(offsets), tuple(sizes), frozenset(dropped))


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@given(st.data())
@settings(max_examples=40)
def test_insertions_are_assignments_in_order(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    parts = data.draw(st.lists(boxes(shape), min_size=1, max_size=3))
    is_empty = data.draw(st.booleans())
    arguments = [f"%p{number}: {part.kind}" for number, part in enumerate(parts)]
    lines = [f"%b = tensor.empty() : {tensor(shape)}"] if is_empty else []
    arguments += [] if is_empty else [f"%b: {tensor(shape)}"]
    last = "%b"
    for number, part in enumerate(parts):
        made = f"%{number}"
        lines.append(
            f"{made} = tensor.insert_slice %p{number} into {last}{part.place} "
            f": {part.kind} into {tensor(shape)}"
        )
        last = made
    text = (
        f"func.func @f({', '.join(arguments)}) -> {tensor(shape)} {{\n"
        + "\n".join([*lines, f"%r = arith.negf {last} : {tensor(shape)}"])
        + f"\nreturn %r : {tensor(shape)}\n}}\n"
    )
    written = np.zeros(shape, bool)
    for part in parts:
        part.of(written)[...] = True
    if is_empty and not written.all():
        with pytest.raises(UnsupportedWorkload, match="never written"):
            read_text(text, "program.mlir")
        return
    workload, _ = read_text(text, "program.mlir")
    arrays = list(random_inputs(workload, np.random.default_rng(0)).values())
    expected = np.zeros(shape, np.float32) if is_empty else arrays[-1].copy()
    for part, array in zip(parts, arrays, strict=False):
        part.of(expected)[...] = array.reshape(part.sizes)
    names = [it.name for it in workload.inputs]
    (found,) = reference_outputs(workload, dict(zip(names, arrays, strict=True))).values()
    np.testing.assert_array_equal(found, -expected)


@given(st.data())
@settings(max_examples=40)
def test_slices_are_views(data: st.DataObject) -> None:
    """Slices too, and slices that drop dimensions."""
    shape = data.draw(SHAPES)
    outer = data.draw(boxes(shape))
    inner = data.draw(
        boxes(tuple(s for at, s in enumerate(outer.sizes) if at not in outer.dropped))
    )
    text = (
        f"func.func @f(%a: {tensor(shape)}) -> {inner.kind} {{\n"
        f"%0 = tensor.extract_slice %a{outer.place} : {tensor(shape)} to {outer.kind}\n"
        f"%1 = tensor.extract_slice %0{inner.place} : {outer.kind} to {inner.kind}\n"
        f"%2 = arith.negf %1 : {inner.kind}\nreturn %2 : {inner.kind}\n}}\n"
    )
    workload, _ = read_text(text, "program.mlir")
    arrays = random_inputs(workload, np.random.default_rng(0))
    (array,) = arrays.values()
    part = outer.of(array).reshape(
        [s for at, s in enumerate(outer.sizes) if at not in outer.dropped]
    )
    (found,) = reference_outputs(workload, arrays).values()
    np.testing.assert_array_equal(found, -inner.of(part).reshape(found.shape))


@given(st.integers(0, 2), st.lists(st.integers(1, 3), min_size=1, max_size=4))
@settings(max_examples=20)
def test_concatenations(along: int, extents: list[int]) -> None:
    shapes = [[2 if at != along else extent for at in range(3)] for extent in extents]
    whole = [2 if at != along else sum(extents) for at in range(3)]
    names = [f"%a{number}" for number in range(len(shapes))]
    kinds = [tensor(shape) for shape in shapes]
    arguments = ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True))
    text = (
        f"func.func @f({arguments}) -> {tensor(whole)} {{\n"
        f"%0 = tensor.concat dim({along}) {', '.join(names)} : ({', '.join(kinds)}) "
        f"-> {tensor(whole)}\n%1 = arith.negf %0 : {tensor(whole)}\n"
        f"return %1 : {tensor(whole)}\n}}\n"
    )
    workload, _ = read_text(text, "program.mlir")
    arrays = random_inputs(workload, np.random.default_rng(0))
    (found,) = reference_outputs(workload, arrays).values()
    np.testing.assert_array_equal(found, -np.concatenate(list(arrays.values()), along))


@pytest.mark.parametrize(("low", "high"), [("0, 0", "0, 16"), ("1, 3", "1, 1")])
def test_concatenations_of_padded_tensors(
    backend: MLIRBackend, target: Target, low: str, high: str
) -> None:
    """The padded tensor is read element by element, so that it is made as a whole before."""
    (above, left), (below, right) = (map(int, margin.split(",")) for margin in (low, high))
    rows, columns = 4 + above + below, 32 + left + right
    padded, joined = tensor([rows, columns]), tensor([rows, 2 * columns])
    text = (
        f"func.func @f(%a: {tensor([4, 32])}, %b: {padded}) -> {joined} {{\n"
        f"%z = arith.constant 1.0 : f32\n%p = tensor.pad %a low[{low}] high[{high}] {{\n"
        f"^bb0(%i: index, %j: index):\ntensor.yield %z : f32\n}} : {tensor([4, 32])} to {padded}\n"
        f"%0 = tensor.concat dim(1) %p, %b : ({padded}, {padded}) -> {joined}\n"
        f"return %0 : {joined}\n}}\n"
    )
    workload, program = read_text(text, "program.mlir")
    check_program(backend, BuildRequest(workload, program, None, target, 1))


@pytest.mark.parametrize("slices", [("0, 16", "0, 0"), ("1, 3", "0, 8")])
def test_slices_beside_each_other(
    backend: MLIRBackend, target: Target, slices: tuple[str, str]
) -> None:
    """Rotary embeddings have such slices: their elements lie apart in memory."""
    whole, part, inner = tensor([5, 33]), tensor([4, 16]), tensor([4, 8])
    first, second = (
        f"tensor.extract_slice %a[{place}] [4, 16] [1, 1] : {whole} to {part}" for place in slices
    )
    joined = tensor([4, 24])
    text = (
        f"func.func @f(%a: {whole}) -> {joined} {{\n%0 = {first}\n%1 = {second}\n"
        f"%2 = tensor.extract_slice %1[0, 1] [4, 8] [1, 2] : {part} to {inner}\n"
        f"%3 = tensor.concat dim(1) %0, %2 : ({part}, {inner}) -> {joined}\n"
        f"return %3 : {joined}\n}}\n"
    )
    workload, program = read_text(text, "program.mlir")
    check_program(backend, BuildRequest(workload, program, None, target, 1))

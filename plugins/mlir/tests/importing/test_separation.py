"""Operations with several results, and those that find an extreme value and its index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.importing.reading import read_text
from numpy.typing import NDArray

from autotune.backends import BuildRequest
from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import reference_outputs
from autotune.targets import Target
from autotune.testing.programs import (
    check_program,
)

ROWS, COLUMNS = "affine_map<(i, j) -> (i)>", "affine_map<(i, j) -> (j)>"
AT_ONCE = """
%t = arith.addf %v, %a : f32
%p = arith.mulf %a, %a : f32
%n = arith.addf %i, %p : f32
"""
FIRST_LARGEST = """
%t = arith.maximumf %a, %v : f32
%c = arith.cmpf ogt, %a, %v : f32
%n = arith.select %c, %place, %i : i64
"""


def program(
    body: str,
    shape: tuple[int, int] = (6, 32),
    axis: int = 1,
    index: str = "i64",
    start: str = "0xFF800000",
    returns: tuple[int, ...] = (0, 1),
) -> str:
    """A generic that reduces ``%a`` to ``%t`` and, from ``%place``, to ``%n``."""
    tensor = f"tensor<{shape[0]}x{shape[1]}xf32>"
    kinds = [f"tensor<{shape[1 - axis]}x{kind}>" for kind in ("f32", index)]
    out = ROWS if axis == 1 else COLUMNS
    iterators = ['"parallel", "reduction"', '"reduction", "parallel"'][1 - axis]
    results = ", ".join(kinds[place] for place in returns)
    zero = "0" if index.startswith("i") else "0.0"
    return f"""
    func.func @main(%x: {tensor}) -> ({results}) {{
      %value = arith.constant {start} : f32
      %zero = arith.constant {zero} : {index}
      %e = tensor.empty() : {kinds[0]}
      %ei = tensor.empty() : {kinds[1]}
      %f = linalg.fill ins(%value : f32) outs(%e : {kinds[0]}) -> {kinds[0]}
      %g = linalg.fill ins(%zero : {index}) outs(%ei : {kinds[1]}) -> {kinds[1]}
      %r:2 = linalg.generic {{
        indexing_maps = [affine_map<(i, j) -> (i, j)>, {out}, {out}],
        iterator_types = [{iterators}]
      }} ins(%x : {tensor}) outs(%f, %g : {", ".join(kinds)}) {{
      ^bb0(%a: f32, %v: f32, %i: {index}):
        %k = linalg.index {axis} : index
        %place = arith.index_cast %k : index to i64
        {body}
        linalg.yield %t, %n : f32, {index}
      }} -> ({", ".join(kinds)})
      return {", ".join(f"%r#{place}" for place in returns)} : {results}
    }}"""


def computed(text: str, x: NDArray[Any]) -> list[NDArray[Any]]:
    workload, _ = read_text(text, "program.mlir")
    return list(reference_outputs(workload, {"arg0": x}).values())


def test_sums_at_once_are_an_operation_each(backend: MLIRBackend, target: Target) -> None:
    text = program(AT_ONCE, index="f32", start="0.0")
    workload, form = read_text(text, "program.mlir")
    assert [stage.combiner for stage in workload.stages] == ["add", "add"]
    x = np.random.default_rng(0).random((6, 32), np.float32)
    sums, squares = computed(text, x)
    np.testing.assert_allclose(sums, x.sum(1), rtol=1e-5)
    np.testing.assert_allclose(squares, (x * x).sum(1), rtol=1e-5)
    check_program(backend, BuildRequest(workload, form, None, target, 1))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ({"body": AT_ONCE, "index": "f32", "start": "0.0"}, (["add"], ["add"])),
        ({"body": FIRST_LARGEST}, (["max"], ["max", "min"])),
    ],
)
def test_only_what_is_needed_of_results_is_computed(
    text: dict[str, Any], stages: tuple[list[str], ...], place: int
) -> None:
    workload, _ = read_text(program(**text, returns=(place,)), "program.mlir")
    assert [stage.combiner for stage in workload.stages] == stages[place]


def test_results_without_a_reduction_are_an_operation_each() -> None:
    text = """
    func.func @main(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
      %e = tensor.empty() : tensor<4x8xf32>
      %r:2 = linalg.generic {
        indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
                         affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "parallel"]
      } ins(%x : tensor<4x8xf32>) outs(%e, %e : tensor<4x8xf32>, tensor<4x8xf32>) {
      ^bb0(%a: f32, %v: f32, %w: f32):
        %p = arith.mulf %a, %a : f32
        %n = arith.negf %p : f32
        linalg.yield %p, %n : f32, f32
      } -> (tensor<4x8xf32>, tensor<4x8xf32>)
      return %r#0, %r#1 : tensor<4x8xf32>, tensor<4x8xf32>
    }"""
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    squares, negated = computed(text, x)
    np.testing.assert_array_equal(squares, x * x)
    np.testing.assert_array_equal(negated, -(x * x))


def selected(predicate: str, operands: str, kept_first: bool = False) -> str:
    """Value and index by one comparison."""
    value, index = ("%v, %a", "%i, %place") if kept_first else ("%a, %v", "%place, %i")
    return f"""
    %c = arith.cmpf {predicate}, {operands} : f32
    %t = arith.select %c, {value} : f32
    %n = arith.select %c, {index} : i64"""


@pytest.mark.parametrize(
    ("body", "largest", "last"),
    [
        (FIRST_LARGEST, True, False),
        (selected("ogt", "%a, %v"), True, False),
        (selected("oge", "%a, %v"), True, True),
        (selected("olt", "%v, %a"), True, False),
        (selected("oge", "%v, %a", kept_first=True), True, False),
        (selected("olt", "%a, %v"), False, False),
        (selected("ogt", "%a, %v", kept_first=True), False, True),
    ],
)
@pytest.mark.parametrize("axis", [0, 1])
def test_an_index_is_known_by_how_values_are_compared(
    body: str, largest: bool, last: bool, axis: int
) -> None:
    x = np.random.default_rng(0).integers(-3, 4, (7, 9)).astype(np.float32)
    start = "0xFF800000" if largest else "0x7F800000"
    value, index = computed(program(body, (7, 9), axis, start=start), x)
    find = np.argmax if largest else np.argmin
    wanted = x.shape[axis] - 1 - find(np.flip(x, axis), axis) if last else find(x, axis)
    np.testing.assert_array_equal(index, wanted)
    np.testing.assert_array_equal(value, np.max(x, axis) if largest else np.min(x, axis))


def changed(old: str, new: str) -> str:
    assert old in FIRST_LARGEST
    return FIRST_LARGEST.replace(old, new)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (program(changed("ogt", "olt")), "not that of the value that it keeps"),
        (program(changed("ogt", "oeq")), "not that of the value that it keeps"),
        (program(changed("maximumf", "addf")), "does not select between"),
        (program(FIRST_LARGEST, start="0.5"), "does not begin with the neutral"),
        (
            program("%q = arith.addi %place, %place : i64" + changed("%place", "%q")),
            "not affine in what it reduces",
        ),
    ],
)
def test_what_else_depends_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedWorkload, match=f"linalg.generic at .*: .*({reason})"):
        read_text(text, "program.mlir")

"""Rows that are asked for, or written, while another one is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autotune_mlir import bindings
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import payload
from autotune_mlir.importing.scalar_import import defining
from autotune_mlir.parsing import parse_payload
from autotune_mlir.passes.pipeline_rows import PIPELINE, LateStage, pipeline_rows
from autotune_mlir.passes.pipeline_rows import mark_of as mark_late
from autotune_mlir.passes.prefetch_rows import (
    PREFETCH,
    NextRow,
    mark_of,
    prefetch_rows,
    stage_positions,
)
from row_norms import layer_norm, pipelined, rms_norm, with_small_cache

from autotune.backends import InvalidSchedule, ProgramFile
from autotune.ir.expressions import const
from autotune.ir.workloads import Workload, elementwise, softmax
from autotune.sketches import Candidate, Prefetch, Sketch, SoftwarePipeline, Step
from autotune.spaces import SketchSpace
from autotune.targets import Target
from autotune.testing.programs import check_candidate, request_for

WORKLOADS = (softmax(m=48, n=256), rms_norm(32, 192), layer_norm(48, 64))
workloads = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.name)


def candidates(
    workload: Workload, target: Target, backend: MLIRBackend, prefetch: int | None
) -> list[Candidate]:
    """One of each sketch that writes rows late, or with that choice one that does not."""
    limits = backend.limits(target)
    names = {sketch.name for sketch in pipelined(workload, target, limits)}
    found: dict[str, Candidate] = {}
    space = SketchSpace(workload, target, limits)
    for candidate in space.sample(200, np.random.default_rng(target.cores)):
        is_late = candidate.sketch.name in names
        chosen = is_late if prefetch is None else candidate.config.get("Y.prefetch") == prefetch
        if chosen and (is_late or candidate.config["Y.i.0"] > 1):
            found.setdefault(candidate.sketch.name, candidate)
    assert found
    return list(found.values())


def lowered(backend: MLIRBackend, candidate: Candidate, target: Target) -> str:
    request = request_for(candidate, target, target.cores, None)
    return str(backend.lower(request).program.module)


@workloads
def test_the_same_is_computed_when_rows_are_asked_for(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    small = with_small_cache(target).with_cores(1)
    for candidate in candidates(workload, small, backend, 1)[:3]:
        check_candidate(backend, candidate, small)
        assert "llvm.intr.prefetch" in lowered(backend, candidate, small)
    (without, *_) = candidates(workload, small, backend, 0)
    assert "llvm.intr.prefetch" not in lowered(backend, without, small)


@pytest.mark.parametrize("cores", [1, 2])
@workloads
def test_the_same_is_computed_when_rows_are_written_late(
    workload: Workload, cores: int, backend: MLIRBackend, target: Target
) -> None:
    small = with_small_cache(target).with_cores(cores)
    for candidate in candidates(workload, small, backend, None):
        check_candidate(backend, candidate, small, threads=cores)
        at_once = without(candidate, SoftwarePipeline)
        stores = [lowered(backend, it, small).count("nontemporal") for it in (candidate, at_once)]
        assert stores[0] == 2 * stores[1] > 0  # in the next row's loop, and behind the last row


IMPORTED = """
func.func @shares(%data: tensor<48x128xf32>) -> tensor<48x128xf32> {
  %zero = arith.constant 0.0 : f32
  %none = tensor.empty() : tensor<48xf32>
  %start = linalg.fill ins(%zero : f32) outs(%none : tensor<48xf32>) -> tensor<48xf32>
  %sum = linalg.generic {
    indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a)>],
    iterator_types = ["parallel", "reduction"]
  } ins(%data : tensor<48x128xf32>) outs(%start : tensor<48xf32>) {
  ^bb0(%x: f32, %sum: f32):
    %next = arith.addf %sum, %x : f32
    linalg.yield %next : f32
  } -> tensor<48xf32>
  %whole = tensor.empty() : tensor<48x128xf32>
  %share = linalg.generic {
    indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a)>,
                     affine_map<(a, b) -> (a, b)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%data, %sum : tensor<48x128xf32>, tensor<48xf32>) outs(%whole : tensor<48x128xf32>) {
  ^bb0(%x: f32, %total: f32, %out: f32):
    %part = arith.divf %x, %total : f32
    linalg.yield %part : f32
  } -> tensor<48x128xf32>
  return %share : tensor<48x128xf32>
}
"""


def test_imported_rows_are_pipelined_as_well(
    backend: MLIRBackend, target: Target, tmp_path: Path
) -> None:
    """Of a function with other names of its operations and axes."""
    path = tmp_path / "shares.mlir"
    path.write_text(IMPORTED)
    imported = backend.import_program(ProgramFile(path, "mlir"))
    workload, small = imported.workload, with_small_cache(target).with_cores(1)
    limits = backend.limits(small)
    names = {sketch.name for sketch in pipelined(workload, small, limits)}
    drawn = SketchSpace(workload, small, limits).sample(100, np.random.default_rng(0))
    candidate = next(it for it in drawn if it.sketch.name in names)
    check_candidate(backend, candidate, small, program=imported.program)
    request = request_for(candidate, small, 1, imported.program)
    assert str(backend.lower(request).program.module).count("nontemporal") == 2


def without(candidate: Candidate, kind: type) -> Candidate:
    sketch = candidate.sketch
    steps: list[Step] = [step for step in sketch.core_steps if not isinstance(step, kind)]
    changed = Sketch(sketch.name, sketch.workload, sketch.params, sketch.constraints, tuple(steps))
    return Candidate(changed, tuple(candidate.config.values()))


def test_single_elements_ask_as_well(backend: MLIRBackend, target: Target) -> None:
    """Of a matrix without any other step: once for each element."""
    workload = elementwise(m=8, n=16)
    (stage, *_) = workload.stages
    steps = (Prefetch(stage.name, stage.reads[0], stage.name, "i.0", const(1)),)
    candidate = Candidate(Sketch("by-hand", workload, (), (), steps), ())
    check_candidate(backend, candidate, target)
    assert lowered(backend, candidate, target.with_cores(1)).count("llvm.intr.prefetch") == 1


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Prefetch("Y", "X", "Y", "i.0", const(1)), "it reads no such input"),
        (Prefetch("Y", "E", "Y", "i.0", const(1)), "it reads no such input"),
        (SoftwarePipeline("E", "i.0", "M"), "runs outputs late, and not 'E'"),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    step: Step, message: str, backend: MLIRBackend, target: Target
) -> None:
    workload = softmax(m=8, n=16)
    candidate = Candidate(Sketch("by-hand", workload, (), (), (step,)), ())
    with pytest.raises(InvalidSchedule, match=message):
        lowered(backend, candidate, target.with_cores(1))


def test_stages_are_found_by_their_places() -> None:
    text = payload(WORKLOADS[0])
    lines = text.splitlines()
    with (module := parse_payload(text)).context:
        places = stage_positions(module)
    assert list(places) == [stage.name for stage in WORKLOADS[0].stages]
    for place in places.values():
        line, column = map(int, place.split(":"))
        assert lines[line - 1][column - 1 :].startswith(("%", "linalg"))


BODY = """
func.func @kernel(%x: memref<8x64xf32>, %y: memref<8x64xf32>) attributes {{{mark}}} {{
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %s = memref.alloca() : memref<64xf32>
  scf.for %i = %c0 to %c8 step %c1 {{
    %t = memref.alloca() : memref<64xf32>
    {body}
  }}
  return
}}
"""
VECTOR = """
    %r = vector.transfer_read %x[%i, %c0], %zero {in_bounds = [true]}
      : memref<8x64xf32>, vector<40xf32>
"""
ROW = """
    %v = memref.subview %x[%i, 0] [1, 64] [1, 1]
      : memref<8x64xf32> to memref<64xf32, strided<[1], offset: ?>>
    %r = vector.transfer_read %v[%c8], %zero {in_bounds = [true]}
      : memref<64xf32, strided<[1], offset: ?>>, vector<16xf32>
"""
ELEMENTS = """
    %v = memref.subview %x[%i, 0] [1, 64] [1, 1]
      : memref<8x64xf32> to memref<1x64xf32, strided<[64, 1], offset: ?>>
    linalg.generic {
      indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (b)>],
      iterator_types = ["parallel", "parallel"]
    } ins(%v : memref<1x64xf32, strided<[64, 1], offset: ?>>) outs(%t : memref<64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    }
"""


@pytest.mark.parametrize(
    ("read", "wanted"),
    [(VECTOR, [(1, 0), (1, 16), (1, 32)]), (ROW, [(8 + 64,)]), (ELEMENTS, [(1, 0)])],
    ids=["vector", "row", "elements"],
)
def test_each_line_of_what_is_ahead_is_asked_for(read: str, wanted: list[tuple[int, ...]]) -> None:
    """At the place of what is read in the first row, moved along the dimensions of the buffer."""
    mark = f'{PREFETCH} = "{mark_of([NextRow("E", 0, 64)])}"'
    text = BODY.format(mark=mark, body=read)
    ir = bindings.load().ir
    with (module := parse_payload(text)).context, ir.Location.unknown():
        (kernel,) = module.body.operations
        prefetch_rows(ir, kernel.operation, {"E": place_of(text, ("linalg", "vector"))})
        assert module.operation.verify()
        assert PREFETCH not in kernel.attributes
        assert asked(ir, module) == wanted


def place_of(text: str, names: tuple[str, ...]) -> str:
    """``LINE:COLUMN`` of the first operation that is called so."""
    for number, line in enumerate(text.splitlines(), 1):
        operation = line.strip().removeprefix("%r = ")
        if operation.startswith(names):
            return f"{number}:{line.index(operation) + 1}"
    raise AssertionError(names)


def asked(ir: Any, module: Any) -> list[tuple[int, ...]]:
    """The indices of each prefetch in the first iteration of all loops."""
    found: list[tuple[int, ...]] = []

    def visit(operation: Any) -> Any:
        if operation.name == "memref.prefetch":
            found.append(tuple(map(at_first, list(operation.operands)[1:])))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def at_first(value: Any) -> int:
    producer = defining(value)
    if producer is None or producer.name in ("linalg.index", "affine.apply"):
        return 0
    if producer.name == "arith.constant":
        return int(producer.attributes["value"].value)
    assert producer.name == "arith.addi"
    return sum(map(at_first, producer.operands))


HOSTED = """
    scf.for %k = %c0 to %c64 step %c16 {{
      %e = vector.transfer_read %x[%i, %k], %zero {{in_bounds = [true]}}
        : memref<8x64xf32>, vector<16xf32>
      %n = arith.negf %e : vector<16xf32>
      vector.transfer_write %n, {first}[%k] {{in_bounds = [true]}}
        : vector<16xf32>, memref<64xf32>
    }}
    scf.for %k = %c0 to %c64 step %c16 {{
      %e = vector.transfer_read %s[%k], %zero {{in_bounds = [true]}}
        : memref<64xf32>, vector<16xf32>
      vector.transfer_write %e, %t[%k] {{in_bounds = [true]}} : vector<16xf32>, memref<64xf32>
    }}
    scf.for %k = %c0 to %c64 step %c16 {{
      %e = vector.transfer_read %t[%k], %zero {{in_bounds = [true]}}
        : memref<64xf32>, vector<16xf32>
      vector.transfer_write %e, %y[%i, %k] {{in_bounds = [true]}}
        : vector<16xf32>, memref<8x64xf32>
    }}
"""


@pytest.mark.parametrize("first", ["%s", "%t"])
def test_a_row_that_is_overwritten_before_is_not_written_late(first: str) -> None:
    mark = f'{PIPELINE} = "{mark_late([LateStage(1, "Y", "H")])}"'
    text = BODY.format(mark=mark, body=HOSTED.format(first=first))
    places = {"H": place_of(text, ("scf.for %k",))}
    ir = bindings.load().ir
    with (module := parse_payload(text)).context, ir.Location.unknown():
        (kernel,) = module.body.operations
        if first == "%t":
            with pytest.raises(InvalidSchedule, match=r"'Y' .* 'H': what it reads is overwritten"):
                pipeline_rows(ir, kernel.operation, places)
            return
        pipeline_rows(ir, kernel.operation, places)
        assert module.operation.verify()
        assert str(module).count("vector.transfer_write") == 4

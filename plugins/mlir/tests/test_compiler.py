"""Parsing, scheduling, lowering and generating code, and what is said when they fail."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from autotune_mlir import bindings, compiler, parsing
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.compiler import OPT_LEVEL_VARIABLE, Lowered, generate, lower
from autotune_mlir.emit import payload
from autotune_mlir.parsing import brief
from mlir_schedules import executable_of, scheduled
from numpy.typing import NDArray
from thread_programs import in_fresh_process

from autotune.backends import BuildFailed, InvalidSchedule, aligned_empty
from autotune.errors import InvalidValueError
from autotune.ir.workloads import gemm, random_inputs, reference_outputs
from autotune.sketches import Candidate
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target
from autotune.testing.programs import check_executable, request_for, run_executable

SMALL = gemm(m=16, n=32, k=8)
PROGRAM = payload(SMALL)

SCRIPT = """
module attributes {{transform.with_named_sequence}} {{
  transform.named_sequence @__transform_main(%root: !transform.any_op) {{
    %op = transform.structured.match attributes {{autotune.stage = "C"}} in %root
      : (!transform.any_op) -> !transform.any_op
    {operation}
    transform.yield
  }}
}}
"""


def tiled(rows: int) -> str:
    return SCRIPT.format(
        operation=f"%tile, %loop = transform.structured.tile_using_for %op tile_sizes [{rows}] "
        ": (!transform.any_op) -> (!transform.any_op, !transform.any_op)"
    )


FORALL = SCRIPT.format(
    operation="%tile, %loop = transform.structured.tile_using_forall %op tile_sizes [4] "
    ": (!transform.any_op) -> (!transform.any_op, !transform.any_op)"
)


def lowered(script: str | None, threads: int = 1) -> Lowered:
    return lower(scheduled(PROGRAM, script), threads=threads)


@pytest.mark.parametrize("script", [None, tiled(4), tiled(5), FORALL])
def test_programs_are_right(script: str | None) -> None:
    check_executable(executable_of(lowered(script), SMALL), SMALL)


def test_arrays_without_dimensions() -> None:
    text = """
        func.func @kernel(%in: memref<f32>, %out: memref<f32>) {
          %x = memref.load %in[] : memref<f32>
          memref.store %x, %out[] : memref<f32>
          return
        }
    """
    arrays = [np.array(3, np.float32), np.array(0, np.float32)]
    generate(lower(text, threads=1)).run(arrays)
    assert arrays[1] == 3


def test_results_that_start_from_one_tensor_are_apart() -> None:
    kind, buffer = "tensor<4x4xf32>", "memref<4x4xf32>"
    text = f"""
        func.func @kernel(%a: {buffer}, %b: {buffer}, %c: {buffer}, %d: {buffer}) {{
          %zero = arith.constant 0.0 : f32
          %0 = bufferization.to_tensor %a restrict : {buffer} to {kind}
          %1 = bufferization.to_tensor %b restrict : {buffer} to {kind}
          %2 = tensor.empty() : {kind}
          %3 = linalg.fill ins(%zero : f32) outs(%2 : {kind}) -> {kind}
          %4 = linalg.matmul ins(%0, %1 : {kind}, {kind}) outs(%3 : {kind}) -> {kind}
          bufferization.materialize_in_destination %4 in restrict writable %c
            : ({kind}, {buffer}) -> ()
          %5 = linalg.matmul ins(%1, %0 : {kind}, {kind}) outs(%3 : {kind}) -> {kind}
          bufferization.materialize_in_destination %5 in restrict writable %d
            : ({kind}, {buffer}) -> ()
          return
        }}
    """
    a, b, c, d = arrays = [aligned_empty((4, 4), np.float32) for _ in range(4)]
    a[:], b[:] = np.arange(32, dtype=np.float32).reshape(2, 4, 4)
    generate(lower(text, threads=1, by_default=True)).run(arrays)
    np.testing.assert_array_equal(c, a @ b)
    np.testing.assert_array_equal(d, b @ a)


def test_digests_are_of_what_is_computed() -> None:
    plain, again = (lowered(None) for _ in range(2))
    fine, whole = (lowered(tiled(rows)) for rows in (4, 16))
    assert plain.digest == again.digest != fine.digest
    # A tile that is all there is leaves nothing behind.
    assert whole.digest == plain.digest
    assert generate(plain).digest == generate(again).digest != generate(fine).digest


def test_parallel_loops_of_one_thread_are_loops() -> None:
    assert "omp." not in str(lowered(FORALL).module)
    assert "omp.parallel num_threads" in str(lowered(FORALL, 2).module)


def test_a_program_that_does_not_parse() -> None:
    with pytest.raises(BuildFailed, match=r"does not parse: .*:2:12.*foo\.bar"):
        lower("func.func @kernel() {\n      %x = foo.bar\n}", threads=1)


def test_a_program_without_the_function() -> None:
    with pytest.raises(BuildFailed, match="no function @kernel"):
        lower("func.func @other() { return }", threads=1)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("module { nonsense }", ":1:10: custom op 'nonsense' is unknown"),
        ("module {}", "no sequence @__transform_main"),
        (SCRIPT.format(operation="transform.structured.fuse %op"), "error"),
        (
            SCRIPT.format(
                operation="transform.structured.vectorize %op vector_sizes [3, 2, 1] "
                ": !transform.any_op"
            ),
            "[vV]ector",
        ),
    ],
)
def test_schedules_that_cannot_be_applied(script: str, why: str) -> None:
    with pytest.raises(InvalidSchedule, match=why) as caught:
        scheduled(PROGRAM, script)
    assert len(str(caught.value)) < 500


def test_a_pass_that_fails() -> None:
    unknown = """
        func.func @kernel(%out: memref<4xf32>) {
          %x = bufferization.to_tensor %out restrict : memref<4xf32> to tensor<4xf32>
          %y = "tosa.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
          bufferization.materialize_in_destination %y in restrict writable %out
            : (tensor<4xf32>, memref<4xf32>) -> ()
          return
        }
    """
    with pytest.raises(BuildFailed, match="tosa.exp|bufferiz") as caught:
        lower(unknown, threads=1)
    assert len(str(caught.value)) < 500


def test_a_function_that_nobody_has() -> None:
    text = """
        func.func private @missing()
        func.func @kernel(%out: memref<4xf32>) {
          call @missing() : () -> ()
          return
        }
    """
    with pytest.raises(BuildFailed, match="function"):
        generate(lower(text, threads=1))


def test_features_that_the_target_lacks_are_not_used() -> None:
    plain = lower(PROGRAM, threads=1)
    less = lower(PROGRAM, threads=1, disabled=("avx512f", "avx2", "fma", "avx"))
    assert '"-avx512f"' in str(less.module)
    assert less.digest != plain.digest
    check_executable(executable_of(less, SMALL), SMALL)


def test_nothing_is_printed() -> None:
    text = f"""
        import os
        os.dup2(1, 2)
        from autotune_mlir import compiler
        from autotune.errors import AutotuneError
        for program in {[PROGRAM, "nonsense"]!r}:
            try:
                compiler.generate(compiler.lower(program, threads=1))
            except AutotuneError:
                pass
    """
    assert in_fresh_process(text) == ""


# A row of what is copied takes 2 KiB, and is put on the stack.
PRODUCT = gemm(m=96, n=128, k=512)
LITTLE_STACK = 512 << 10

needs_openmp = pytest.mark.needs("openmp")


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=needs_openmp)])
def test_many_tiles_need_no_more_stack_than_one(
    threads: int, backend: MLIRBackend, target: Target
) -> None:
    space = SketchSpace(PRODUCT, target, backend.limits(target))
    sketch = next(sketch for sketch in space.sketches() if sketch.name == "plain-rows")
    lanes = next(param for param in sketch.params if param.name == "C.j.3").values
    assert lanes is not None
    values = {"C.i.extent": 96, "C.i.0": 96, "C.j.0": 128 // lanes[0], "C.j.3": lanes[0]}
    values |= {"C.k.0": 128, "C.k.1": 4}
    tiny = Candidate(sketch, tuple(values.get(param.name, 1) for param in sketch.params))
    assert values["C.i.0"] * values["C.j.0"] * 512 * 4 > 2 * LITTLE_STACK
    executable = backend.build(request_for(tiny, target, threads))
    found: list[NDArray[Any]] = []
    inputs = random_inputs(PRODUCT, np.random.default_rng(0))
    before = threading.stack_size(LITTLE_STACK)
    try:
        thread = threading.Thread(
            target=lambda: found.extend(run_executable(executable, PRODUCT, inputs))
        )
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    expected = reference_outputs(PRODUCT, inputs)["C"]
    np.testing.assert_allclose(found[0], expected, rtol=2e-5, atol=2e-5)


def test_the_optimisation_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OPT_LEVEL_VARIABLE, raising=False)
    assert compiler.opt_level() == 3
    version = compiler.compiler_version()
    assert version == bindings.bindings_version()
    lowered = lower(PROGRAM, threads=1)
    fast = generate(lowered)
    monkeypatch.setenv(OPT_LEVEL_VARIABLE, "0")
    assert compiler.compiler_version() == f"{version} -O0"
    screened = executable_of(lower(PROGRAM, threads=1), SMALL)
    assert screened.digest != fast.digest
    check_executable(screened, SMALL)
    for wrong in ("4", "-1", "fast", ""):
        monkeypatch.setenv(OPT_LEVEL_VARIABLE, wrong)
        with pytest.raises(InvalidValueError, match="from 0 to 3"):
            compiler.compiler_version()


def test_llvm_says_its_release() -> None:
    assert compiler.llvm_version()[0].isdigit()


def test_contexts_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_CONTEXT_USES", 3)
    monkeypatch.setattr(parsing, "_contexts", parsing._Contexts())
    modules = [parsing.parse_payload(PROGRAM) for _ in range(7)]
    contexts = [id(module.context) for module in modules]
    assert len(set(contexts)) == 3
    assert contexts == sorted(contexts, key=contexts.index)


def test_messages_are_brief() -> None:
    error: Any = RuntimeError('Failed:\nerror: "-":1:2:  it is   wrong\n note: so\n')
    assert brief(error) == 'Failed: error: "-":1:2: it is wrong note: so'
    shown = 'error: wrong\n note: "-":3:4: see current operation: %0 = "a" ' + "x" * 1000
    assert brief(RuntimeError(shown)) == "error: wrong"
    assert len(brief(RuntimeError("word " * 500))) < 500
    assert brief(ValueError("")) == "no message"

"""Printed programs compute what the reference and the interpreter of the nest do."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve
from divided_reductions import grouped_convolution, shared_factor
from emulated_instructions import assembly
from printed_workloads import ParallelSuite, PrintedSuite, drawn
from written import written

from autotune.backends.native import NativeBackend
from autotune.ir.workloads import (
    Workload,
    attention,
    conv2d,
    dense,
    elementwise,
    gemm,
    random_inputs,
    softmax,
)
from autotune.lower import LLVMEmitter, print_candidate
from autotune.lower.c import CEmitter
from autotune.sketches import Candidate
from autotune.targets import detect_cpu, preset
from autotune.targets.target import Cache
from autotune.testing.programs import check_candidate, check_nest, sample_candidates

BACKEND = NativeBackend()


class TestPrinted(PrintedSuite, ParallelSuite):
    threads = (2, 3)

    @pytest.fixture
    def backend(self) -> NativeBackend:
        return BACKEND


@pytest.mark.parametrize(
    "workload",
    [gemm(m=6, n=16, k=5), conv2d(h=4, w=4, ci=2, co=8, pad=1), softmax(m=3, n=16)],
)
def test_programs_agree_with_the_interpreter_of_the_nest(workload: Workload) -> None:
    """The interpreter knows nothing of vectors, registers and addresses."""
    inputs = random_inputs(workload, np.random.default_rng(0))
    for candidate in drawn(BACKEND, workload, preset("haswell-2core"), 1):
        check_nest(candidate, inputs, tolerance=1e-4)
        check_candidate(BACKEND, candidate, detect_cpu(), inputs)


@pytest.mark.parametrize(
    "indices", ["i + 3, k", "i, k + 5", "15 - i, k", "i, 11 - k", "17 - i, 13 - k"]
)
def test_copies_of_parts_begin_where_they_are_read(indices: str) -> None:
    """Not where the loops do: a window of an operand, or one that is read backwards."""
    product = f"C[i:16, j:24; k:12] += A[{indices}] * B[k, j]"
    workload = written("A[19, 17], B[12, 24]", product)
    inputs = random_inputs(workload, np.random.default_rng(0))
    for candidate in drawn(BACKEND, workload, preset("haswell-2core"), 0, each=2):
        check_nest(candidate, inputs, tolerance=1e-5)
        check_candidate(BACKEND, candidate, detect_cpu(), inputs)


def test_axes_of_a_stage_may_have_any_names() -> None:
    """Readers of other languages number them, as copies number the dimensions that they copy."""
    product = "C[d0:16, d1:32; d2:12] += A[d0, d2] * B[d2, d1]"
    workload = written("A[16, 12], B[12, 32]", product)
    for candidate in drawn(BACKEND, workload, preset("haswell-2core"), 0, each=2):
        check_candidate(BACKEND, candidate, detect_cpu())


@pytest.mark.parametrize("workload", [grouped_convolution(), shared_factor()])
def test_quotients_of_expanded_loops_are_told_apart(workload: Workload) -> None:
    """Values loaded for one copy of a statement are not taken for those that another one reads."""
    for candidate in drawn(BACKEND, workload, preset("haswell-2core"), 0, each=4):
        check_candidate(BACKEND, candidate, detect_cpu())


def test_bounded_loops_of_one_iteration() -> None:
    """Their counters are no digits of what they bound."""
    for candidate in drawn(
        BACKEND, attention(h=1, n=4, d=4, causal=1), preset("haswell-2core"), 0, each=2
    ):
        check_candidate(BACKEND, candidate, detect_cpu())


def text_of(candidate: Candidate, width: int = 8) -> str:
    return str(print_candidate(candidate, LLVMEmitter(), width).text)


def count(text: str, wanted: Callable[[str], bool]) -> int:
    return sum(map(wanted, text.splitlines()))


def test_registers_of_a_tile_are_written_to_memory_once() -> None:
    """No product is added in memory: the loop over k holds multiplications and loads alone."""
    for candidate in drawn(BACKEND, gemm(m=24, n=64, k=64), preset("haswell-2core"), 5):
        text = text_of(candidate)
        products = count(text, lambda line: "fmul contract <" in line)
        assert products > 0, candidate.sketch.name
        assert count(text, lambda line: "fmul contract float" in line) == 0, candidate.sketch.name


@pytest.mark.parametrize("workload", [dense(m=64, n=100, k=64), dense(m=64, n=1000, k=512)])
def test_copies_transpose_squares_where_they_are_padded_too(workload: Workload) -> None:
    """Rows beyond an operand are not read, and not element by element either."""
    transposing = 0
    for candidate in drawn(BACKEND, workload, preset("haswell-2core"), 1):
        if "packed" in candidate.sketch.name:
            text = text_of(candidate)
            copies = re.findall(r"store float [^\n]*", text)
            assert not copies, candidate.config
            transposing += "shufflevector <8 x float>" in text
    assert transposing


def test_tasks_that_write_past_the_caches_end_with_a_fence() -> None:
    """Nothing else says that another thread sees what they wrote."""
    workload = elementwise(m=64, n=256)
    small = evolve(preset("haswell-2core"), caches=(Cache(1, 1 << 15, False),))
    candidates = drawn(BACKEND, workload, small, 0, 40)
    texts = {
        name: [str(print_candidate(it, made(), 8).text) for it in candidates]
        for name, made in (("llvm", LLVMEmitter), ("c", lambda: CEmitter("kernel", 8)))
    }
    for name, streamed, fence in (
        ("llvm", "!nontemporal", "fence seq_cst"),
        ("c", "  STREAM(", "__atomic_thread_fence"),
    ):
        streaming = [text for text in texts[name] if streamed in text and "task0" in text]
        assert streaming
        assert all((fence in text) == (text in streaming) for text in texts[name])


def test_exponentials_of_rows_that_vectors_do_not_divide_are_of_vectors() -> None:
    """The multiply-adds of a polynomial for one element alone would be scalar instructions."""
    target = preset("skylake-avx512-4core")
    candidates = sample_candidates(BACKEND, softmax(m=12, n=197), target)
    for candidate in {it.sketch.name: it for it in candidates}.values():
        if "recompute-narrow" in candidate.sketch.name:
            continue  # Vectors of four leave one element.
        text = str(print_candidate(candidate, LLVMEmitter(), target.vector_bytes // 4).text)
        assert not re.search(r"vf\w*add\w*ss\s", assembly(text, target))


def channels_first(width: int, dtype: str) -> Workload:
    """A convolution whose rows, of ``width`` sums, lie side by side: they are its vectors."""
    given = f"X[3, 2, w + 2]: {dtype}, W[2, 3, 3]: {dtype}"
    product = "X[ci, h, w + kw] * W[c, ci, kw]"
    return written(given, f"Y[c:2, h:2, w; ci:3, kw:3]: {dtype} += {product}", w=width)


@pytest.mark.parametrize(
    ("width", "dtype"),
    [*((width, "float32") for width in (3, 5, 6, 7, 14)), (3, "float64"), (7, "float64")]
    + [(11, "int32"), (7, "float16"), (7, "int8")],
)
def test_vectors_that_fill_no_register_are_read_up_to_the_end_of_arrays(
    width: int, dtype: str
) -> None:
    """Arrays end where the memory does, and some of these vectors end there, too."""
    for candidate in drawn(BACKEND, channels_first(width, dtype), preset("haswell-2core"), 0, 2):
        check_candidate(BACKEND, candidate, detect_cpu())


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_vectors_that_fill_no_register_are_read_by_one_load(dtype: str) -> None:
    candidates = drawn(BACKEND, channels_first(7, dtype), preset("haswell-2core"), 0)
    direct = next(it for it in candidates if it.sketch.name == "direct")
    in_pieces, whole = (
        str(print_candidate(direct, LLVMEmitter(masked_bytes=size), 8).text) for size in (0, 32)
    )
    pieces = r"load <7 x [^>]*>, ptr %(?!r)"  # Registers are slots until LLVM takes them.
    assert re.search(pieces, in_pieces) and "masked.load" not in in_pieces
    assert "masked.load.v8" in whole and not re.search(pieces, whole)

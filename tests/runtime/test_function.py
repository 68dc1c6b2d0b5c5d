"""A tuned program as a callable: what it reads in place, and what it writes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from attrs import evolve
from toy_parts import REFERENCE_BACKEND

from autotune.backends import aligned_copy, aligned_empty
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.ir.workloads import gemm
from autotune.runtime.function import TunedFunction
from autotune.targets import detect_cpu
from autotune.testing.sample_records import KEY, sample_record
from autotune.tuning.result import compile_record

M, N, K = 8, 8, 8


@pytest.fixture
def matmul() -> TunedFunction:
    record = sample_record(tile=8, key=evolve(KEY, backend=REFERENCE_BACKEND))
    assert record.candidate.sketch.workload == gemm(m=M, n=N, k=K)
    return compile_record(record, backend=REFERENCE_BACKEND)


def operands(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((M, K)), rng.standard_normal((K, N))
    return a.astype(np.float32), b.astype(np.float32)


def placed_apart(array: np.ndarray) -> np.ndarray:
    """The same numbers, four bytes behind where programs could read them."""
    memory = aligned_empty((array.nbytes + 4,), np.uint8)
    apart = memory[4:].view(array.dtype).reshape(array.shape)
    apart[...] = array
    return apart


def test_inputs_may_lie_anywhere(matmul: TunedFunction) -> None:
    a, b = operands()
    wanted = matmul(aligned_copy(a), aligned_copy(b))
    np.testing.assert_allclose(wanted, a @ b, rtol=1e-5)
    fixed = aligned_copy(a)
    fixed.flags.writeable = False
    transposed = np.asfortranarray(a)
    swapped = a.astype(a.dtype.newbyteorder("S"))
    for one in (placed_apart(a), transposed, fixed, np.repeat(a, 2, axis=0)[::2], swapped):
        np.testing.assert_array_equal(matmul(one, B=placed_apart(b)), wanted)
        np.testing.assert_array_equal(one, a)


def test_a_tensor_with_gradients_is_taken_as_its_numbers(matmul: TunedFunction) -> None:
    class Recording:
        """Tensor that requires gradients, as torch's may."""

        def __init__(self, array: np.ndarray) -> None:
            self._array = array

        def detach(self) -> np.ndarray:
            return self._array

        def __array__(self, *_: object, **__: object) -> np.ndarray:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad")

    a, b = operands()
    found = matmul(Recording(a), b)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found, matmul(a, b))


def test_aligned_inputs_are_read_in_place_and_copies_kept(
    matmul: TunedFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = aligned_copy(operands()[0]), placed_apart(operands()[1])
    bound: list[list[np.ndarray]] = []
    bind = matmul.executable.bind
    monkeypatch.setattr(
        matmul.executable, "bind", lambda given, out: (bound.append(given), bind(given, out))[1]
    )
    results = [matmul(a, b), matmul(a, placed_apart(2 * b))]
    (first, copy), (second, again) = bound
    assert first is a and second is a
    assert copy is again and not np.may_share_memory(copy, b)
    np.testing.assert_allclose(2 * results[0], results[1], rtol=1e-5)


def test_results_are_written_where_the_caller_says(matmul: TunedFunction) -> None:
    (a, b), out = operands(), aligned_empty((M, N), np.float32)
    assert matmul(a, b, out=out) is out
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)
    assert matmul(a, b, out=[out]) is out
    square = aligned_copy(a)
    with pytest.raises(InvalidValueError, match="shares memory with an input"):
        matmul(square, b, out=square)
    with pytest.raises(InvalidValueError, match="output 'C' is float32 of shape"):
        matmul(a, b, out=aligned_empty((M, N), np.float64))
    with pytest.raises(InvalidValueError, match="1 outputs, got 2"):
        matmul(a, b, out=[out, out])


def test_threads_have_copies_of_their_own(matmul: TunedFunction) -> None:
    pairs = [operands(seed) for seed in range(4)]
    wrong: list[int] = []

    def call(number: int) -> None:
        a, b = map(placed_apart, pairs[number])
        for _ in range(20):
            if not np.allclose(matmul(a, b), a @ b, rtol=1e-4, atol=1e-5):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_record_of_a_cpu_with_more_than_this_one_has_is_refused() -> None:
    """Its program would end the process at the first instruction that is not known here."""
    here = detect_cpu()
    more = evolve(here, name="more", features=(*here.features, "avx99"), vector_bytes=128)
    record = evolve(
        sample_record(), key=evolve(KEY, backend="native", threads=1), target=more.to_json()
    )
    said = "backend 'native' runs programs on this machine, which lacks avx99 of target 'more'"
    with pytest.raises(UnsupportedTarget, match=said):
        compile_record(record)

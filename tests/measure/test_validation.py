from __future__ import annotations

import fcntl
import json
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.ir.workloads import (
    Workload,
    conv2d,
    gemm,
    random_inputs,
    reference_outputs,
    softmax,
)
from autotune.measure.validation import (
    expectations,
    mismatch,
    read_arrays,
    relative_bound,
    reserve_reference,
)
from autotune.targets import preset, resolve


def reference(workload: Workload) -> list[NDArray[np.generic]]:
    inputs = random_inputs(workload, np.random.default_rng(0))
    return list(reference_outputs(workload, inputs).values())


def float32_sum(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """A matrix product that rounds after every single addition, as the plainest code does."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = total + a[:, k : k + 1] * b[k]
    return total


@pytest.mark.parametrize("k", [1, 7, 64, 1024, 4096])
def test_plain_float32_accumulation_passes_with_a_margin(k: int) -> None:
    workload = gemm(m=16, n=16, k=k)
    inputs = random_inputs(workload, np.random.default_rng(1))
    expected = expectations(workload, list(reference_outputs(workload, inputs).values()))
    result = float32_sum(inputs["A"], inputs["B"])
    assert mismatch(expected, [result]) is None
    error = np.abs(result - expected[0].reference)
    # The bound grows as the error does: neither is far from the other at any length.
    assert 4 * error.max() < expected[0].bound.mean() < 200 * max(error.max(), 1e-8)


@pytest.mark.parametrize("k", [7, 64, 1024, 4096])
def test_one_missing_term_does_not_pass(k: int) -> None:
    workload = gemm(m=16, n=16, k=k)
    inputs = random_inputs(workload, np.random.default_rng(1))
    expected = expectations(workload, list(reference_outputs(workload, inputs).values()))
    result = float32_sum(inputs["A"][:, 1:], inputs["B"][1:])
    assert mismatch(expected, [result]) is not None


def test_half_precision_in_between_does_not_pass() -> None:
    workload = gemm(m=16, n=16, k=64)
    inputs = random_inputs(workload, np.random.default_rng(1))
    expected = expectations(workload, list(reference_outputs(workload, inputs).values()))
    result = expected[0].reference.astype(np.float16).astype(np.float32)
    assert mismatch(expected, [result]) is not None


def test_float64_is_held_to_its_own_precision() -> None:
    workload = gemm(m=8, n=8, k=8, dtype="float64")
    (right,) = reference(workload)
    expected = expectations(workload, [right])
    assert mismatch(expected, [right * (1 + 1e-15)]) is None
    assert mismatch(expected, [right.astype(np.float32).astype(np.float64)]) is not None


def test_integers_are_exact() -> None:
    workload = gemm(m=8, n=8, k=8, dtype="int8")
    (right,) = reference(workload)
    expected = expectations(workload, [right])
    assert mismatch(expected, [right.copy()]) is None
    wrong = right.copy()
    wrong[3, 4] += 1
    message = mismatch(expected, [wrong])
    assert message is not None
    assert "1 of 64 elements" in message
    assert "largest error 1 " in message
    assert "[3, 4]" in message


def test_the_message_says_what_is_wrong() -> None:
    workload = gemm(m=8, n=8, k=8)
    (right,) = reference(workload)
    wrong = right.copy()
    wrong[2, 5] += 0.5
    wrong[7, 7] += 0.25
    message = mismatch(expectations(workload, [right]), [wrong])
    assert message is not None
    for part in ("'C'", "2 of 64", "largest error 0.5 ", "relative", "allowed", "[2, 5]"):
        assert part in message


def test_what_was_not_written_does_not_pass() -> None:
    workload = gemm(m=8, n=8, k=8)
    (right,) = reference(workload)
    wrong = right.copy()
    wrong[0, 0] = np.nan
    message = mismatch(expectations(workload, [right]), [wrong])
    assert message is not None
    assert "nan" in message


def test_infinities_and_nan_in_the_reference() -> None:
    workload = gemm(m=2, n=2, k=2)
    right = np.array([[np.inf, -np.inf], [np.nan, 1.0]], np.float32)
    expected = expectations(workload, [right])
    assert mismatch(expected, [right.copy()]) is None
    for place, value in (((0, 0), -np.inf), ((0, 1), 0.0), ((1, 0), 1.0), ((1, 1), np.nan)):
        wrong = right.copy()
        wrong[place] = value
        assert mismatch(expected, [wrong]) is not None


def test_another_shape_or_type_does_not_pass() -> None:
    workload = gemm(m=4, n=4, k=4)
    (right,) = reference(workload)
    expected = expectations(workload, [right])
    assert "expected float32[4, 4]" in (mismatch(expected, [right[:2]]) or "")
    assert "is float64" in (mismatch(expected, [right.astype(np.float64)]) or "")


def test_the_bound_counts_all_stages_before_an_output() -> None:
    eps = float(np.finfo(np.float32).eps)
    assert relative_bound(gemm(m=4, n=4, k=64), "C") == pytest.approx(8 * eps * (1 + 8))
    padded = conv2d(h=8, w=8, ci=4, co=4, pad=1, relu=1)
    assert relative_bound(padded, "R") == pytest.approx(8 * eps * (1 + (1 + 6) + 1))
    rows = softmax(m=4, n=16)
    # M (a maximum: exact), E (exp), S (16 terms), Y (a division)
    assert relative_bound(rows, "Y") == pytest.approx(8 * eps * (1 + 5 + (1 + 4) + 5))
    assert relative_bound(gemm(m=4, n=4, k=4, dtype="int8"), "C") == 0


def test_files_give_back_what_was_drawn() -> None:
    workload = softmax(m=4, n=4)
    files = reserve_reference(workload, 7)
    files.fill()
    inputs = random_inputs(workload, np.random.default_rng(7))
    (mapped,) = read_arrays(files.inputs)
    np.testing.assert_array_equal(mapped, inputs["X"])
    assert not mapped.flags.writeable
    (output,) = read_arrays(files.outputs)
    np.testing.assert_array_equal(output, reference_outputs(workload, inputs)["Y"])
    files.close()


def test_nobody_can_write_to_the_files() -> None:
    files = reserve_reference(softmax(m=4, n=4), 7)
    files.fill()
    for path in (*files.inputs, *files.outputs):
        before = Path(path).read_bytes()
        with open(path, "r+b", buffering=0) as file:
            for write in (lambda file: file.write(b"zeros"), lambda file: file.truncate(0)):
                with pytest.raises(PermissionError):
                    write(file)
            with pytest.raises(PermissionError):
                mmap.mmap(file.fileno(), 0)
        assert Path(path).read_bytes() == before
    files.close()


def test_files_are_known_before_they_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = softmax(m=4, n=4)
    files, wanted = (reserve_reference(workload, 7) for _ in range(2))
    wanted.fill()
    paths = [Path(path) for path in (*files.inputs, *files.outputs)]
    assert not any(path.stat().st_size for path in paths)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        # Between the input, which is written and sealed, and the output.
        seals = fcntl.fcntl
        patched.setattr(fcntl, "fcntl", interrupted_after(seals, 2))
        files.fill()
    for _ in range(2):
        files.fill()
    for path, other in zip(paths, (*wanted.inputs, *wanted.outputs), strict=True):
        assert path.read_bytes() == Path(other).read_bytes()
    files.close()
    wanted.close()


def interrupted_after(function: Callable[..., Any], calls: int) -> Callable[..., Any]:
    """The function, whose calls after so many are interrupted."""
    left = iter(range(calls))

    def called(*arguments: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return function(*arguments)

    return called


def rounded_sum(workload: Workload, how: str) -> NDArray[np.generic]:
    """The product of a workload of halves by sums in float32, or in halves."""
    inputs = random_inputs(workload, np.random.default_rng(0))
    element = workload.tensors["A"].element
    a, b = (element.numbers(inputs[name]).astype(np.float32) for name in ("A", "B"))
    if how == "one missing term":
        a, b = a[:, 1:], b[1:]
    if how != "sums of halves":
        return element.stored(float32_sum(a, b))
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = element.numbers(element.stored(total + a[:, k : k + 1] * b[k])).astype(np.float32)
    return element.stored(total)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("k", [7, 64, 1024])
def test_halves_are_held_to_the_precision_of_their_sums(dtype: str, k: int) -> None:
    workload = gemm(m=32, n=32, k=k, dtype=dtype)
    (right,) = reference(workload)
    expected = expectations(workload, [right])
    assert mismatch(expected, [rounded_sum(workload, "sums of float32")]) is None
    assert mismatch(expected, [rounded_sum(workload, "one missing term")]) is not None
    eps = workload.tensors["O"].element.eps
    # Rounding the result is most of it; that inputs are halves is none of it.
    assert 8 * eps < relative_bound(workload, "O") < 8 * eps + 1e-3
    if dtype == "bfloat16" and k == 1024:
        assert mismatch(expected, [rounded_sum(workload, "sums of halves")]) is not None


def test_tf32_widens_the_bound_of_products_of_floats_where_it_is_allowed() -> None:
    target = resolve("a100-tf32")
    workload = gemm(m=64, n=64, k=256)
    inputs = random_inputs(workload, np.random.default_rng(0))
    rounded = {name: rounded_to_tf32(array) for name, array in inputs.items()}
    wanted, got = (list(reference_outputs(workload, it).values()) for it in (inputs, rounded))
    assert mismatch(expectations(workload, wanted), got) is not None
    assert mismatch(expectations(workload, wanted, preset("a100")), got) is not None
    assert mismatch(expectations(workload, wanted, target), got) is None
    missing = [wanted[0] - np.outer(inputs["A"][:, 0], inputs["B"][0])]
    assert mismatch(expectations(workload, wanted, target), missing) is not None
    for other in (softmax(m=4, n=16), gemm(m=8, n=8, k=8, dtype="float16")):
        (name,) = other.outputs
        assert relative_bound(other, name, target) == relative_bound(other, name)


def rounded_to_tf32(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """To nearest, ties away from zero."""
    bits = array.view(np.uint32)
    return ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_in_halves_are_held_to_halves(dtype: str) -> None:
    written = gemm(m=32, n=32, k=64)
    text = json.dumps(written.to_json()).replace("float32", dtype)
    workload = Workload.from_json(json.loads(text))
    eps = workload.tensors["C"].element.eps
    assert relative_bound(workload, "C") == 8 * eps * (1 + 8)
    (right,) = reference(workload)
    expected = expectations(workload, [right])
    for how in ("sums of float32", "sums of halves"):
        assert mismatch(expected, [rounded_sum(workload, how)]) is None
    nothing = np.full(right.shape, 0x7FC0, np.uint16).view(right.dtype)
    assert "nan" in (mismatch(expected, [nothing]) or "")

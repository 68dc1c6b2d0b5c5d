"""The functions that are linked into programs for servers, loaded here: no server is needed."""

from __future__ import annotations

import ctypes
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autotune_tvm import compiler, runtime
from autotune_tvm.emit import module_for
from autotune_tvm.rpc.machine import described_machine
from autotune_tvm.rpc.toolchain import Toolchain, sha256_of
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.backends import BuildFailed
from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.workloads import gemm
from autotune.measure.validation import Expected, mismatch
from autotune.targets import Target

N = 96


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return Toolchain()


@pytest.fixture(scope="module")
def generated(target: Target) -> Any:
    """A matrix product, before it is linked."""
    lowered = compiler.lower_module(module_for(gemm(m=N, n=N, k=N)), target, 1)
    return compiler.generate_code(lowered, target, 1, runs_here=False)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("linked")


@pytest.fixture(scope="module")
def library(toolchain: Toolchain, generated: Any, folder: Path) -> Any:
    """The matrix product as a server would load it."""
    path = folder / "program.so"
    assert toolchain.link(generated, path) == sha256_of(path)
    return runtime.load().runtime.load_module(str(path))


def tensors(*arrays: np.ndarray[Any, Any]) -> list[Any]:
    return [runtime.load().runtime.tensor(array) for array in arrays]


def test_equal_programs_are_equal_files(
    toolchain: Toolchain, generated: Any, library: Any, folder: Path
) -> None:
    assert toolchain.link(generated, folder / "again.so") == sha256_of(folder / "program.so")


def test_the_program_computes_what_it_is_to(library: Any) -> None:
    a, b = np.random.default_rng(0).random((2, N, N), dtype=np.float32)
    given = tensors(a, b, np.zeros((N, N), np.float32))
    library["main"](*given)
    np.testing.assert_allclose(given[2].numpy(), a @ b, rtol=1e-4)


def test_its_time_is_that_of_its_calls(library: Any) -> None:
    given = tensors(*np.ones((3, N, N), np.float32))
    timed, ratios = library["autotune_time"], []
    for _ in range(15):
        begin = time.perf_counter()
        seconds = timed(40, *given)
        ratios.append(40 * seconds / (time.perf_counter() - begin))
    # What a caller sees is the loop, and a call around it.
    assert 0.9 < statistics.median(ratios) <= 1.0
    np.testing.assert_allclose(given[2].numpy(), np.full((N, N), N, np.float32))


def test_a_program_that_refuses_its_arguments_fails_when_timed(library: Any) -> None:
    wrong = tensors(np.ones((3, 3), np.float32))
    with pytest.raises(Exception, match="Expected 3 arguments"):
        library["autotune_time"](2, *wrong)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool", "uint16", "float64"])
def test_one_changed_byte_is_noticed(library: Any, dtype: str) -> None:
    first = np.zeros((7, 3), dtype)
    second = first.copy()
    second.reshape(-1)[-1] = 1
    a, b, c = tensors(first, first, second)
    differs = library["autotune_differs"]
    assert differs() == -1
    assert differs(a, b) == -1
    assert differs(a, b, a, c) == 1
    assert differs(a, c, a, b) == 0
    assert differs(a, tensors(np.zeros((7, 2), dtype))[0]) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@settings(max_examples=settings.default.max_examples // 2)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.0, 0.5, 1.0, 1.5]))
def test_results_are_compared_as_the_host_does(
    library: Any, dtype: str, seed: int, scale: float
) -> None:
    """Right results are right on the host too; NaN and infinity are left to the host."""
    rng = np.random.default_rng(seed)
    reference = rng.standard_normal((5, 3)).astype(dtype)
    bound = np.abs(rng.standard_normal((5, 3))).astype(np.float32)
    result = (reference + scale * bound * rng.choice([-1, 1], (5, 3))).astype(dtype)
    special = seed % 7
    if special < 3:
        place = tuple(rng.integers(0, (5, 3)))
        result[place] = (np.nan, np.inf, -np.inf)[special]
    found = library["autotune_within"](0, *tensors(result, reference, bound))
    want = Expected("C", element_type(dtype), reference, bound)
    assert bool(found) == (mismatch([want], [result]) is None)


def test_results_of_exact_types_are_the_same_bytes(library: Any) -> None:
    def within(*arrays: Any, inputs: int = 0) -> bool:
        return bool(library["autotune_within"](inputs, *arrays))

    right, wrong = np.arange(12, dtype=np.int32), np.arange(12, dtype=np.int32)
    wrong[-1] += 1
    a, b, c = tensors(right, right, wrong)
    assert within(a, b, b) and not within(c, b, b) and not within(a, b, b, c, b, b)
    # Inputs come first, each with its copy.
    assert within(a, b, c, c, a, b, b, inputs=2) and not within(a, b, c, b, a, b, b, inputs=2)
    bound = tensors(np.ones(12, np.float32))[0]
    assert not within(*tensors(*[np.zeros(12, np.float16)] * 2), bound), "nothing is known of it"
    short = tensors(np.ones(3, np.float32))[0]
    both = tensors(*[np.zeros(12, np.float32)] * 2)
    assert within(*both, bound) and not within(*both, short)


def test_poison_is_what_no_program_computes(library: Any) -> None:
    dtypes = ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"]
    given = tensors(*[np.zeros((5, 3), dtype) for dtype in dtypes])
    library["autotune_poison"](*given)
    for array in (tensor.numpy() for tensor in given):
        if array.dtype.kind == "f":
            assert np.isnan(array).all()
        elif array.dtype.kind == "b":
            assert array.all()
        else:
            limits = np.iinfo(array.dtype)
            assert (array == (limits.min if array.dtype.kind == "i" else limits.max)).all()


def test_the_probe_says_what_this_machine_is(toolchain: Toolchain, folder: Path) -> None:
    probe = runtime.load().runtime.load_module(str(toolchain.probe(folder)))
    room = tensors(np.zeros(1 << 16, np.uint8))[0]
    size = probe["autotune_machine"](room)
    text = bytes(room.numpy()[:size]).decode()
    machine = described_machine(text, "here:1", probe["autotune_reference"]())
    assert machine.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert machine.architecture == "x86_64" and machine.cores >= 1
    assert machine.runtime.startswith("ffi 0.1.")
    assert 1e-4 < machine.reference_seconds < 1.0
    small = tensors(np.zeros(64, np.uint8))[0]
    assert probe["autotune_machine"](small) <= 64


def test_a_fault_ends_the_process_without_a_signal(toolchain: Toolchain, folder: Path) -> None:
    """TVM's server serves no more after a session whose process a signal has ended."""
    import subprocess
    import sys

    program = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); ctypes.string_at(0)"
    probe = toolchain.probe(folder)
    done = subprocess.run([sys.executable, "-X", "faulthandler=0", "-c", program, str(probe)])
    assert done.returncode == 0
    assert ctypes.sizeof(ctypes.c_void_p) == 8


def test_a_compiler_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidValueError, match="'no-such-gcc' is not on the PATH.*cc="):
        Toolchain("no-such-gcc -O2").check()


def test_no_compiler_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(InvalidValueError, match="none of cc, gcc, clang is on the PATH"):
        Toolchain().check()


def test_a_compiler_that_fails_says_why(generated: Any, tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"failed: .*no-such-option"):
        Toolchain("cc --no-such-option").link(generated, tmp_path / "program.so")
    assert not (tmp_path / "program.o").exists()


def test_options_of_the_compiler_are_used(generated: Any, tmp_path: Path) -> None:
    Toolchain("cc -Wl,--build-id=sha1").link(generated, tmp_path / "program.so")
    assert b"GNU\x00" in (tmp_path / "program.so").read_bytes()

"""Exported kernels, called as other programs call them."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from needs import skip_here
from python_processes import run_python

from autotune.backends import BuildFailed
from autotune.backends.backend import Array
from autotune.backends.native import NativeBackend
from autotune.backends.native.exports import (
    Kernel,
    Machine,
    export_kernel,
    kernel_of,
    machine_of,
    machine_of_triple,
)
from autotune.backends.native.exports.features import CODE_FEATURES, TILES, detector
from autotune.backends.native.machine_code import compile_library, load_object
from autotune.errors import (
    AutotuneError,
    InvalidValueError,
    UnknownNameError,
    UnsupportedTarget,
    UnsupportedWorkload,
)
from autotune.ir.workloads import Workload, gemm, random_inputs, reference_outputs, softmax
from autotune.sketches import Candidate, Tensorize
from autotune.targets import Target, detect_cpu, preset
from autotune.testing.programs import guarded_empty, sample_candidates

HERE = Path(__file__).parent
BACKEND = NativeBackend()
PRODUCT = gemm(m=20, n=96, k=24).with_constants("B")
# Too long for the stack: every thread has scratch memory.
ROWS = softmax(m=6, n=9001)
ENDINGS = {"c": ".c", "object": ".o", "shared": ".so", "tvm-ffi": ".so"}
OK, NO_PROCESSOR, NO_SCRATCH = 0, -1, -2
# What every processor of x86-64 has registers for.
LEAST = evolve(preset("x86-64"), cores=2)


@cache
def candidate_of(workload: Workload, sketch: str, target: Target) -> Candidate:
    """A candidate of a sketch."""
    found = sample_candidates(BACKEND, workload, target, each=3)
    return next(it for it in found if it.sketch.name == sketch)


def product(*machines: Machine) -> Kernel:
    """The kernel of a product that packs, for this machine or others."""
    candidate = candidate_of(PRODUCT, "packed-root", LEAST)
    chosen = machines or (machine_of(detect_cpu()),)
    return kernel_of("product", [(candidate, LEAST, machine) for machine in chosen])


def rows(target: Target, machine: Machine) -> Kernel:
    """The kernel of a softmax."""
    return kernel_of("rows", [(candidate_of(ROWS, "row-fusion", target), target, machine)])


def exported(kernel: Kernel, format_name: str, folder: Path) -> Path:
    """The file of a kernel."""
    path = folder / f"{kernel.name}{ENDINGS[format_name]}"
    files = export_kernel(kernel, format_name, path)
    assert files[0] == path
    assert all(file.is_file() for file in files)
    return path


def wanted(workload: Workload, inputs: dict[str, Array]) -> Array:
    return next(iter(reference_outputs(workload, inputs).values()))


def build_main(path: Path, compiler: str, *options: str) -> Path:
    """The program in C that calls the product, with what was exported."""
    program = path.with_name("main")
    command = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-I", str(path.parent), *options]
    command += ["-o", str(program), str(HERE / "call_product.c"), str(path), "-lm"]
    subprocess.run(command, check=True)
    return program


def check_main(program: Path, *runner: str) -> None:
    """Run it, and compare what it computes."""
    inputs = random_inputs(PRODUCT, np.random.default_rng(0))
    folder = program.parent
    for name, array in inputs.items():
        array.tofile(folder / f"{name}.bin")
    done = subprocess.run(
        [*runner, str(program)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = np.fromfile(folder / "C.bin", np.float32).reshape(20, 96)
    np.testing.assert_allclose(found, wanted(PRODUCT, inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("format_name", "compiler"),
    [
        pytest.param(kind, name, marks=[pytest.mark.needs(name), *marks])
        for name in ("gcc", "clang")
        for kind, marks in (
            ("c", []),
            # What is in these is LLVM's, whoever links it.
            ("object", [pytest.mark.slow] * (name == "clang")),
            ("shared", [pytest.mark.slow] * (name == "clang")),
        )
    ],
)
def test_a_program_in_c_calls_it(
    format_name: str, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With packed constants, threads and scratch memory, and with what it has to refuse."""
    monkeypatch.setenv("CC", compiler)
    path = exported(product(), format_name, tmp_path)
    check_main(build_main(path, compiler))


@pytest.mark.needs("gcc")
def test_headers_are_for_cpp_too(tmp_path: Path) -> None:
    exported(product(), "object", tmp_path)
    exported(rows(LEAST, machine_of(LEAST)), "object", tmp_path)
    source = tmp_path / "both.cpp"
    source.write_text('#include "product.h"\n#include "rows.h"\nint main() { return 0; }\n')
    options = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run(["g++", *options, str(source)], check=True)


Task = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p], *[ctypes.c_int64] * 3)
Launch = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def launch(_: int, task: int, arrays: int, count: int) -> None:
    """Three parts at once, each by a thread."""
    ends = [count * part // 3 for part in range(4)]
    threads = [
        threading.Thread(target=Task(task), args=(arrays, ends[part], ends[part + 1], part))
        for part in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(
    ("format_name", "at_end"),
    [
        ("c", True),
        ("shared", True),
        ("shared", False),
        pytest.param("c", False, marks=pytest.mark.slow),
    ],
)
def test_nothing_beside_the_arrays_is_touched(
    format_name: str, at_end: bool, tmp_path: Path
) -> None:
    """Scratch memory of three threads included; what strays ends this process."""
    path = exported(rows(LEAST, machine_of(detect_cpu())), format_name, tmp_path)
    if format_name == "c":
        built = path.with_suffix(".so")
        command = ["gcc", "-O1", "-fPIC", "-shared", "-o", str(built), str(path)]
        subprocess.run(command, check=True)
        path = built
    library = ctypes.CDLL(str(path))
    library.rows_scratch_bytes.restype = ctypes.c_size_t
    size = library.rows_scratch_bytes(ctypes.c_int64(3))
    assert size > 3 * 4 * 9001
    inputs = random_inputs(ROWS, np.random.default_rng(0))
    given, output = (guarded_empty((6, 9001), np.float32, at_end=at_end) for _ in range(2))
    np.copyto(given, inputs["X"])
    scratch = guarded_empty((size,), np.uint8, at_end=at_end)

    started = Launch(launch)

    def call(size: int, threads: int, offset: int = 0) -> int:
        arrays = (given.ctypes.data, output.ctypes.data, scratch.ctypes.data + offset)
        addresses = [ctypes.c_void_p(address) for address in arrays]
        numbers = ctypes.c_size_t(size), ctypes.c_int64(threads)
        return int(library.rows(*addresses, *numbers, started, None))

    assert call(size, 3) == OK
    np.testing.assert_allclose(output, wanted(ROWS, inputs), rtol=1e-4, atol=1e-6)
    refused = [call(size - 1, 3), call(size, 4), call(size, 0), call(size, 3, 4)]
    assert refused == [NO_SCRATCH] * len(refused)


# Dispatch


def chosen(kernel: Kernel, folder: Path) -> tuple[str | None, int]:
    """The variant that a library says it runs, and how a call ends that gives no arrays."""
    library = ctypes.CDLL(str(exported(kernel, "shared", folder)))
    library.product_variant.restype = ctypes.c_char_p
    name = library.product_variant()
    nothing = [ctypes.c_void_p(0)] * 5
    status = library.product(*nothing, ctypes.c_size_t(0), ctypes.c_int64(1), None, None)
    return (None if name is None else name.decode()), status


def lacking() -> Machine:
    """A processor with an extension that this one does not have."""
    missing = {*CODE_FEATURES} - TILES - {*detect_cpu().features}
    if not missing:
        skip_here("it has all extensions of its architecture")
    features = (*detect_cpu().features, min(missing))
    return machine_of(evolve(LEAST, name="other", features=features))


@pytest.mark.needs("gcc")
def test_the_best_code_that_the_processor_runs_is_chosen(tmp_path: Path) -> None:
    least, here = machine_of(LEAST), machine_of(detect_cpu())
    assert chosen(product(least, here, lacking()), tmp_path) == (here.name, 1)


@pytest.mark.needs("gcc")
def test_the_least_target_is_what_is_left(tmp_path: Path) -> None:
    least = machine_of(LEAST)
    assert chosen(product(lacking(), least), tmp_path) == (least.name, 1)


@pytest.mark.needs("gcc")
def test_a_processor_that_fits_none_is_told(tmp_path: Path) -> None:
    assert chosen(product(lacking()), tmp_path) == (None, NO_PROCESSOR)


def test_extensions_are_those_that_the_system_names() -> None:
    """Each by itself, as CPUID and the system's registers say."""
    names = [f"has{number}" for number in range(len(CODE_FEATURES))]
    texts = []
    for name, feature in zip(names, CODE_FEATURES, strict=True):
        text = detector(f"{name}.chosen", [(feature,)])
        call = f"  %found = call i32 @{name}.chosen()\n  ret i32 %found"
        texts.append(f"{text}\ndefine i32 @{name}() {{\n{call}\n}}")
    code = compile_library(texts, "x86_64-unknown-linux-gnu", "x86-64", names)
    loaded = load_object(code, names)
    asked = {
        feature
        for name, feature in zip(names, CODE_FEATURES, strict=True)
        if ctypes.CFUNCTYPE(ctypes.c_int32)(loaded.address(name))() == 0
    }
    assert asked == set(CODE_FEATURES) & set(detect_cpu().features)


# Another architecture


ARM = machine_of_triple("aarch64-linux-gnu:cortex-a72")


def test_objects_are_made_for_aarch64(tmp_path: Path) -> None:
    data = exported(product(ARM), "object", tmp_path).read_bytes()
    assert data.startswith(b"\x7fELF\x02")
    assert int.from_bytes(data[18:20], "little") == 183  # EM_AARCH64


@pytest.mark.needs("aarch64-linux-gnu-gcc", "qemu-aarch64")
@pytest.mark.parametrize("format_name", ["c", "object"])
def test_programs_for_aarch64_compute_the_same(format_name: str, tmp_path: Path) -> None:
    path = exported(product(ARM), format_name, tmp_path)
    program = build_main(path, "aarch64-linux-gnu-gcc", "-static")
    check_main(program, "qemu-aarch64")


# Refusals


@pytest.mark.parametrize("format_name", ["c", "object"])
def test_a_file_has_the_ending_of_its_format(format_name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=rf"ends in \{ENDINGS[format_name]}"):
        export_kernel(product(), format_name, tmp_path / "kernel.txt")
    assert not list(tmp_path.iterdir())


def test_formats_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown export format 'objects'; available: c, o"):
        export_kernel(product(), "objects", tmp_path / "kernel.o")


def test_a_header_of_somebody_is_kept(tmp_path: Path) -> None:
    (tmp_path / "product.h").write_text("int mine;\n")
    with pytest.raises(InvalidValueError, match="no header of an export"):
        exported(product(), "object", tmp_path)
    assert (tmp_path / "product.h").read_text() == "int mine;\n"
    assert not (tmp_path / "product.o").exists()


def test_without_a_compiler_nothing_is_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    for format_name in ("shared", "tvm-ffi"):
        with pytest.raises(BuildFailed, match="there is no 'no-such-compiler'"):
            exported(product(), format_name, tmp_path)


REFUSED: tuple[tuple[Callable[[], object], str], ...] = (
    (lambda: machine_of(preset("a100")), "exported for CPUs; target 'a100' is of kind 'cuda'"),
    (lambda: machine_of_triple("riscv64-linux-gnu"), "'riscv64-linux-gnu'; supported: x86_64-"),
    (lambda: machine_of_triple("x86_64-pc-windows-msvc"), "nothing is exported for target triple"),
    (lambda: machine_of_triple("aarch64-linux-gnu:cortex-a67"), "Did you mean 'cortex-a"),
    (lambda: machine_of_triple("aarch64-linux-gnu:"), "names no processor after the colon"),
    (
        lambda: product(machine_of(preset("haswell")), machine_of(preset("avx2"))),
        "targets .* have the same extensions",
    ),
    (lambda: product(machine_of(LEAST), ARM), "one file is for one kind of machine"),
    (lambda: product(ARM, ARM), "need a processor that says what it has"),
    (
        lambda: rows(preset("haswell"), machine_of(LEAST)),
        "16 vector registers of 16 bytes; .* tuned for 16 of 32",
    ),
    (lambda: evolve_name("for"), "'for' is no name of a function in C"),
    (lambda: evolve_name("a b"), "'a b' is no name of a function in C"),
)


def evolve_name(name: str) -> Kernel:
    candidate = candidate_of(PRODUCT, "packed-root", LEAST)
    return kernel_of(name, [(candidate, LEAST, machine_of(LEAST))])


@pytest.mark.parametrize(("make", "why"), REFUSED, ids=[why[:24] for _, why in REFUSED])
def test_what_cannot_be_exported_is_named(make: Callable[[], object], why: str) -> None:
    with pytest.raises(AutotuneError, match=why) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_c_is_for_one_target(tmp_path: Path) -> None:
    kernel = product(machine_of(LEAST), machine_of(preset("haswell")))
    with pytest.raises(InvalidValueError, match="format c is for one target, not for several"):
        exported(kernel, "c", tmp_path)


def test_names_of_others_mean_nothing_in_c(tmp_path: Path) -> None:
    """A record, and its target's name with it, may come from anybody."""
    target = evolve(detect_cpu(), name='*/ int x; /* " \\')
    exported(product(machine_of(target)), "c", tmp_path)
    for file in tmp_path.iterdir():
        text = file.read_text()
        assert "int x" in text
        assert "*/ int x" not in text


# TVM-FFI

FFI = """
import sys
sys.modules.update(tvm=None, torch=None)  # they cannot be imported
import numpy as np
import tvm_ffi

def aligned(array):
    room = np.empty(array.nbytes + 64, np.uint8)
    begin = -room.ctypes.data % 64
    copy = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy

module = tvm_ffi.load_module(sys.argv[1])
a, b = (aligned(np.load(path)) for path in sys.argv[2:4])
c = aligned(np.zeros((20, 96), np.float32))
packed = aligned(np.zeros(module.product_packed_B_bytes(), np.uint8))
view = tvm_ffi.from_dlpack
given = [view(a), view(b), view(c), view(packed)]
module.product_pack_B(given[1], given[3])
module.product(*given)
np.save(sys.argv[4], c)

def refused(kind, said, *arguments):
    try:
        module.product(*arguments)
    except kind as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)

refused(TypeError, "takes 4 tensors, not 3", *given[:3])
refused(TypeError, "argument 1 (A) is no tensor", 1, *given[1:])
double, narrow, column = (aligned(it) for it in (a.astype(np.float64), a[:, 1:], a[:, 0]))
refused(TypeError, "argument 1 (A) has to be of float32", view(double), *given[1:])
refused(ValueError, "(A) has to have shape [20, 24], not [20, 23]", view(narrow), *given[1:])
refused(ValueError, "(A) has to have shape [20, 24], not [20]", view(column), *given[1:])
off = aligned(np.zeros(20 * 24 + 1, np.float32))[1:].reshape(20, 24)
refused(ValueError, "no multiple of 64", view(off), *given[1:])
turned = aligned(np.ascontiguousarray(a.T)).T
refused(ValueError, "(A) is not contiguous", view(turned), *given[1:])
assert not any(name.startswith("tvm.") for name in sys.modules)
"""


@pytest.mark.needs("gcc", "tvm")
def test_tvm_ffi_loads_it_without_tvm(tmp_path: Path) -> None:
    library = exported(product(), "tvm-ffi", tmp_path)
    inputs = random_inputs(PRODUCT, np.random.default_rng(0))
    files = [library.with_name(f"{name}.npy") for name in ("A", "B", "C")]
    for file, array in zip(files, inputs.values(), strict=False):
        np.save(file, array)
    run_python("-c", FFI, str(library), *map(str, files))
    found = np.load(files[2])
    np.testing.assert_allclose(found, wanted(PRODUCT, inputs), rtol=1e-4, atol=1e-4)


SCRATCH = """
import ctypes, sys, threading
if not sys.argv[4:]:
    sys.modules.update(tvm=None, torch=None)
else:
    import tvm
import numpy as np
import tvm_ffi
from autotune.backends.arrays import aligned_copy

module = tvm_ffi.load_module(sys.argv[1])
given, wanted = (aligned_copy(np.load(path)) for path in sys.argv[2:4])
wrong = []

def work():
    output = aligned_copy(np.zeros_like(given))
    for _ in range(3):
        output.fill(0)
        module.rows(tvm_ffi.from_dlpack(given), tvm_ffi.from_dlpack(output))
        if not np.allclose(output, wanted, rtol=1e-4, atol=1e-6):
            wrong.append(output)

threads = [threading.Thread(target=work) for _ in range(0 if sys.argv[4:] else 4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
work()
assert not wrong
pool = ctypes.c_void_p.in_dll(ctypes.CDLL(sys.argv[1]), "__TVMBackendParallelLaunch")
assert (pool.value is not None) == bool(sys.argv[4:])
"""


@pytest.mark.needs("gcc", "tvm")
@pytest.mark.parametrize(
    "runtime", [(), pytest.param(("tvm",), marks=pytest.mark.slow)], ids=["alone", "tvm"]
)
def test_threads_of_tvm_ffi_have_scratch_memory_each(
    runtime: tuple[str, ...], tmp_path: Path
) -> None:
    """Beside TVM's runtime on its threads, and without it."""
    kernel = evolve(rows(LEAST, machine_of(detect_cpu())), threads=2)
    library = exported(kernel, "tvm-ffi", tmp_path)
    inputs = random_inputs(ROWS, np.random.default_rng(0))
    for name, array in (("X", inputs["X"]), ("Y", wanted(ROWS, inputs))):
        np.save(tmp_path / f"{name}.npy", array)
    arguments = [library, tmp_path / "X.npy", tmp_path / "Y.npy", *runtime]
    run_python("-c", SCRATCH, *map(str, arguments), TVM_NUM_THREADS="2")


@pytest.mark.needs("gcc")
def test_it_needs_the_c_library_alone(tmp_path: Path) -> None:
    """Also where nothing has loaded TVM-FFI: all symbols are found."""
    library = exported(product(), "tvm-ffi", tmp_path)
    loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_LOCAL)
    assert loaded.product_packed_B_bytes() > 0
    done = subprocess.run(
        ["objdump", "-p", str(library)], capture_output=True, text=True, check=True
    )
    needed = {line.split()[1] for line in done.stdout.splitlines() if "NEEDED" in line}
    assert needed <= {"libc.so.6"}


# Instructions

SERVERS = {
    "cascadelake-2core": "avx512vnni",
    "sapphirerapids-2core": "amx-int8, amx-tile, avx512vbmi",
}


@cache
def with_instructions(name: str) -> Candidate:
    """A product of integers by the instructions of a processor."""
    workload = gemm(m=32, n=64, k=64, dtype="u8s8s32")
    return candidate_of(workload, "packed-root", preset(name))


@pytest.mark.parametrize("name", SERVERS)
def test_a_target_without_an_instruction_is_refused(name: str) -> None:
    machine = machine_of(preset("x86-64-v4"))
    with pytest.raises(UnsupportedTarget, match=f"'x86-64-v4-4core' lacks {SERVERS[name]}, which"):
        kernel_of("product", [(with_instructions(name), preset(name), machine)])


@pytest.mark.parametrize("name", SERVERS)
def test_instructions_are_in_objects(name: str, tmp_path: Path) -> None:
    """Tile registers are asked for where they are used only."""
    choice = with_instructions(name), preset(name), machine_of(preset(name))
    kernel = kernel_of("product", [choice])
    (variant,) = kernel.variants
    assert variant.uses_tiles == bool(TILES & {*variant.features}) == ("amx" in SERVERS[name])
    exported(kernel, "object", tmp_path)
    with pytest.raises(UnsupportedWorkload, match="instructions, which are not printed as C"):
        exported(kernel, "c", tmp_path)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("dtype", ["int8", "u8s8s32"])
def test_products_of_words_become_products_one_by_one_in_c(dtype: str, tmp_path: Path) -> None:
    """A processor without VNNI has an instruction for them, which C does not name."""
    target, workload = preset("haswell-2core"), gemm(m=9, n=24, k=20, dtype=dtype)
    candidate = candidate_of(workload, "packed-root", target)
    assert any(isinstance(it, Tensorize) for it in candidate.sketch.core_steps)
    kernel = kernel_of("bytes", [(candidate, target, machine_of(detect_cpu()))])
    path, built = exported(kernel, "c", tmp_path), tmp_path / "bytes.so"
    options = ["-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *options, "-o", str(built), str(path)], check=True)
    library = ctypes.CDLL(str(built))
    library.bytes_scratch_bytes.restype = ctypes.c_size_t
    size = library.bytes_scratch_bytes(ctypes.c_int64(1))
    inputs = random_inputs(workload, np.random.default_rng(0))
    given = [guarded_empty(it.shape, it.dtype, at_end=False) for it in inputs.values()]
    for own, array in zip(given, inputs.values(), strict=True):
        np.copyto(own, array)
    found, scratch = (
        guarded_empty(shape, kind, at_end=False)
        for shape, kind in (((9, 24), np.int32), ((size,), np.uint8))
    )
    arrays = [ctypes.c_void_p(it.ctypes.data) for it in (*given, found, scratch)]
    assert library.bytes(*arrays, ctypes.c_size_t(size), ctypes.c_int64(1), None, None) == OK
    np.testing.assert_array_equal(found, wanted(workload, inputs))


def test_all_that_is_made_of_a_constant_at_once_is_given_memory() -> None:
    """Columns of signed bytes, and their sums, by which products are corrected."""
    name = "cascadelake-2core"
    workload = gemm(m=32, n=64, k=64, dtype="int8").with_constants("B")
    candidate = candidate_of(workload, "packed-root", preset(name))
    kernel = kernel_of("product", [(candidate, preset(name), machine_of(preset(name)))])
    pack, run = kernel.calls
    sums, columns = 64 * 4, 64 * 64
    assert [it.name for it in pack.arguments] == ["B", "packed_B", "packed_B_"]
    assert sorted(it.shape[0] for it in pack.arguments[1:]) == [sums, columns]
    assert pack.positions[1:] == run.positions[3:]

"""Networks saved as libraries, called as other programs call them."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from needs import skip_here
from numpy.typing import NDArray
from python_processes import run_python

from autotune.backends import BuildFailed
from autotune.backends.native import NativeBackend
from autotune.backends.native.exports import machine_of_triple, with_prefix
from autotune.backends.native.exports.features import CODE_FEATURES, TILES
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.ir.element_types import element_type
from autotune.networks.graph import (
    Graph,
    Value,
    binary,
    cast,
    constant,
    evaluate,
    input_value,
    loop,
    matmul,
    reshape,
    softmax,
    sort,
    take,
    unary,
)
from autotune.networks.library.loaded import load_network
from autotune.networks.library.saving import save_library
from autotune.networks.plan.cpu_network import (
    BuiltPlan,
    CpuNetwork,
    compile_network,
    printed_for,
)
from autotune.networks.plan.planning import native_program
from autotune.targets import Target, detect_cpu
from autotune.testing.programs import sample_candidates

pytestmark = pytest.mark.needs("gcc")

Array = NDArray[Any]

HERE = Path(__file__).parent
THREADS = 2


@cache
def machine() -> Target:
    return detect_cpu()


def graph() -> Graph:
    """All that a library may have in it: weights, a loop, operators of the host, conditions."""
    rng = np.random.default_rng(0)
    weights, square = (rng.standard_normal(it).astype(np.float32) for it in ((40, 24), (24, 24)))
    x, rows = input_value('a "name"', (450, 40), "float32"), input_value("rows", (5,), "int64")
    by = input_value("by", (5,), "int32")

    def step(states: Any, slices: Any, fixed: Any) -> tuple[list[Value], list[Value]]:
        state = unary("tanh", matmul(states[0], constant(square)))
        return [state], [state]

    hidden = unary("tanh", matmul(x, constant(weights)))
    (last,), (kept,) = loop(step, 3, [hidden])
    chosen = take(last, rows, 0)
    values, places = sort(chosen, 1, descending=True)
    return Graph(
        (x, rows, by),
        {
            "last": last,
            "kept": kept,
            "angle": unary("atan", values),
            "places": places,
            "halves": cast(chosen, "bfloat16"),
            "parts": binary("div", cast(rows, "int32"), by),
            "shares": softmax(reshape(x, (2, 9000)), 1),
        },
    )


def given(seed: int = 1) -> list[Array]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((450, 40)).astype(np.float32)
    return [x, np.array([0, -1, 449, -450, 7]), np.array([1, 2, -1, 3, 7], np.int32)]


@cache
def wanted() -> dict[str, Array]:
    whole = graph()
    names = [value.name for value in whole.inputs]
    return evaluate(whole, dict(zip(names, given(), strict=True)))


def planned(whole: Graph) -> BuiltPlan:
    """The plan of a network whose kernels pack constants and run on threads, with memory each."""
    candidates = {}
    for it in whole.workloads:
        drawn = sample_candidates(NativeBackend(), it, machine())[::-1]
        programs = [native_program(it, each, machine(), THREADS) for each in drawn]
        most = max(range(len(drawn)), key=lambda at: programs[at].memory.each)
        candidates[it.digest] = drawn[most]
    found = compile_network(whole, candidates, machine(), THREADS)
    made = found.plan.programs.values()
    assert any(it.layout.packed for it in made) and any(it.memory.each for it in made)
    return found.built


@cache
def built_plan() -> BuiltPlan:
    return planned(graph())


PLAIN = ("last", "kept", "angle", "places", "parts", "shares")
NAME = "a network */"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "net.so"
    (said,) = save_library(NAME, built_plan(), path)
    assert str(path.with_suffix(".h")) in said
    return path


def check(found: Any) -> None:
    for (name, right), array in zip(wanted().items(), found, strict=True):
        dtype = "bfloat16" if name == "halves" else str(right.dtype)
        left = np.asarray(array)
        if dtype == "bfloat16":
            left, right = (element_type(dtype).numbers(it.view(np.uint16)) for it in (left, right))
        bound = 0 if "int" in dtype else 1e-2 if dtype == "bfloat16" else 1e-4
        np.testing.assert_allclose(left, right, bound, bound)


def test_it_computes_what_the_graph_does(library: Path) -> None:
    network = load_network(library)
    assert network.name == "a network */" and network.target == machine().name
    assert [it.name for it in network.inputs] == ['a "name"', "rows", "by"]
    assert network.inputs[0].shape == (450, 40) and network.inputs[1].dtype == "int64"
    assert [it.name for it in network.outputs] == [*wanted()]
    check(network(*given()))
    # Whatever lies where: what is unaligned or strided is copied.
    x, *others = given()
    moved = np.empty(x.size + 1, np.float32)[1:].reshape(x.shape)
    moved[...] = x
    check(network(np.asfortranarray(x), *others))
    check(network(moved, *others))
    assert len(network.time_calls(given(), 3)) == 3
    for threads in (1, 3):
        network.threads = threads
        assert network.threads == threads
        check(network(*given()))
    with pytest.raises(InvalidValueError, match="threads are from 1 to 1024, and not 0"):
        network.threads = 0


def test_calls_at_once_wait_for_each_other(library: Path) -> None:
    network, found = load_network(library), list[Any]()
    inputs = given()

    def call() -> None:
        found.extend(network(*inputs) for _ in range(5))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    for outputs in found:
        check(outputs)


ALONE = """
import importlib.abc, os, sys

class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in {*sys.stdlib_module_names, "numpy", "autotune"}:
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Refused())
os.environ["PATH"] = ""
import numpy as np
import autotune

network = autotune.load_network(sys.argv[1])
given = [np.load(f"{sys.argv[2]}/{number}.npy") for number in range(3)]
before = network(*given)
assert network.threads == int(sys.argv[3])
child = os.fork()
if not child:
    again = network(*given)
    os._exit(0 if all(map(np.array_equal, before[:2], again[:2])) else 1)
assert os.waitpid(child, 0)[1] == 0
for number, array in enumerate(network(*given)):
    np.save(f"{sys.argv[2]}/output{number}.npy", array)
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library without the output of bfloat16, which numpy does not have."""
    whole = graph()
    outputs = {name: whole.outputs[name] for name in PLAIN}
    path = tmp_path_factory.mktemp("plain") / "plain.so"
    save_library(NAME, planned(Graph(whole.inputs, outputs)), path)
    return path


@pytest.mark.parametrize(
    ("said", "threads"),
    [(said, min(THREADS, len(os.sched_getaffinity(0)))) for said in (None, "many")] + [("3", 3)],
)
def test_it_runs_where_there_is_numpy_alone(
    plain: Path, tmp_path: Path, said: str | None, threads: int
) -> None:
    for number, array in enumerate(given()):
        np.save(tmp_path / f"{number}.npy", array)
    arguments = str(plain), str(tmp_path), str(threads)
    run_python("-c", ALONE, *arguments, AUTOTUNE_NUM_THREADS=said)
    for number, name in enumerate(PLAIN):
        found = np.load(tmp_path / f"output{number}.npy")
        np.testing.assert_allclose(found, wanted()[name], 1e-4, 1e-4)


def test_a_program_of_c_calls_it(library: Path, tmp_path: Path) -> None:
    header = library.with_suffix(".h")
    check_cpp = ["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"]
    if shutil.which("g++"):
        subprocess.run([*check_cpp, str(header)], check=True)
    assert "*/" not in header.read_text().partition("\n")[0].removesuffix("*/")
    for number, array in enumerate(given()):
        array.tofile(tmp_path / f"input{number}.bin")
    program = tmp_path / "program"
    options = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{library.parent}", "-o"]
    linked = [str(library), f"-Wl,-rpath,{library.parent}"]
    source = str(HERE / "call_network.c")
    subprocess.run(["gcc", *options, str(program), source, *linked], check=True)
    done = subprocess.run([program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.startswith('a "name" 3 7 input a "name" begins at address')
    check(
        np.fromfile(tmp_path / f"output{number}.bin", right.dtype).reshape(right.shape)
        for number, right in enumerate(wanted().values())
    )


ARM = machine_of_triple("aarch64-linux-gnu:cortex-a72").target


def elsewhere(target: Target) -> CpuNetwork:
    """The network for another processor, with a schedule for each of its workloads."""
    whole, printed = graph(), printed_for(target)
    candidates = {
        it.digest: sample_candidates(NativeBackend(), it, printed)[-1] for it in whole.workloads
    }
    save = partial(save_library, NAME)
    return compile_network(whole, candidates, target, THREADS, save=save)


@pytest.mark.needs("aarch64-linux-gnu-gcc", "qemu-aarch64")
def test_a_library_for_aarch64_computes_the_same(tmp_path: Path) -> None:
    path, program = tmp_path / "net.so", tmp_path / "program"
    network = elsewhere(ARM)
    assert network.lacks.endswith("runs on aarch64, which this is not")
    network.save(path)
    with pytest.raises(InvalidValueError, match="cannot be loaded"):
        load_network(path)
    for number, array in enumerate(given()):
        array.tofile(tmp_path / f"input{number}.bin")
    sources = [str(HERE / "call_network.c"), str(path), f"-I{tmp_path}", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(["aarch64-linux-gnu-gcc", "-o", str(program), *sources], check=True)
    emulated = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", str(program)]
    # The emulator ends in an error of its own where a child that it forked starts threads.
    alone = {**os.environ, "AUTOTUNE_NUM_THREADS": "1"}
    subprocess.run(emulated, cwd=tmp_path, check=True, capture_output=True, env=alone)
    check(
        np.fromfile(tmp_path / f"output{number}.bin", right.dtype).reshape(right.shape)
        for number, right in enumerate(wanted().values())
    )


def test_a_network_for_what_this_processor_lacks_is_built_and_says_so(tmp_path: Path) -> None:
    missing = [it for it in CODE_FEATURES if it not in machine().features and it not in TILES]
    if not missing:
        skip_here("this processor has every extension")
    network = elsewhere(evolve(machine(), features=(*machine().features, missing[0])))
    assert missing[0] in network.lacks
    calls = (
        lambda inputs: network(*inputs),
        network.profile,
        lambda inputs: network.time_calls(inputs, 1),
    )
    for call in calls:
        with pytest.raises(UnsupportedTarget, match=missing[0]):
            call(given())
    network.save(tmp_path / "net.so")
    with pytest.raises(InvalidValueError, match=f"this processor lacks {missing[0]}"):
        load_network(tmp_path / "net.so")(*given())


def test_networks_are_for_two_architectures() -> None:
    with pytest.raises(UnsupportedTarget, match="for x86-64 and AArch64; target 'other' has"):
        printed_for(Target(kind="cpu", name="other", processor="power9"))


def test_it_needs_the_c_library_alone(library: Path) -> None:
    said = subprocess.run(["readelf", "-d", "-W", library], capture_output=True, text=True)
    needed = [
        line.split("[")[1].rstrip("]") for line in said.stdout.splitlines() if "NEEDED" in line
    ]
    assert needed and all(it.startswith(("libc.", "libm.", "ld-linux")) for it in needed)
    said = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1] for line in said.stdout.splitlines()}
    assert all(name.startswith(("autotune_network_", "__tvm_ffi_main")) for name in names)
    # Relocatable or writable, weights would be copied.
    said = subprocess.run(["readelf", "-S", "-W", library], capture_output=True, text=True)
    (weights,) = (line for line in said.stdout.splitlines() if ".autotune_weights" in line)
    assert weights.split()[-4:] == ["A", "0", "0", "4096"]


@pytest.mark.parametrize(
    ("number", "value", "said"),
    [
        (
            0,
            np.zeros((450, 41), np.float32),
            r"float32\[450, 41\]; the network takes float32\[450, 40\]",
        ),
        (1, np.zeros(5, np.int32), r"input 'rows' is int32\[5\]; the network takes int64\[5\]"),
        (1, np.array([0, 0, 450, 0, 0]), "net.so: take: index 450 is not from -450 to 449"),
        (1, np.array([0, 0, 0, 0, -451]), "index -451 is not"),
        (2, np.array([1, 1, 0, 1, 1], np.int32), "an integer is divided by zero"),
    ],
)
def test_inputs_that_it_refuses(library: Path, number: int, value: Array, said: str) -> None:
    network, inputs = load_network(library), given()
    inputs[number] = value
    with pytest.raises(InvalidValueError, match=said):
        network(*inputs)
    check(network(*given()))
    with pytest.raises(
        InvalidValueError, match="2 inputs; the network takes 'a \"name\"', 'rows'"
    ):
        network(*given()[:2])


def test_a_processor_that_lacks_something_is_told_what(tmp_path: Path) -> None:
    missing = [it for it in CODE_FEATURES if it not in machine().features and it not in TILES]
    if not missing:
        skip_here("this processor has every extension")
    target = evolve(
        machine(), name="another one", features=(*machine().features, missing[0], missing[-1])
    )
    path = tmp_path / "other.so"
    save_library(NAME, evolve(built_plan(), target=target), path)
    with pytest.raises(InvalidValueError) as caught:
        load_network(path)(*given())
    assert str(caught.value) == (
        f"other.so: this processor lacks {missing[0]}, which the network was made with for "
        "another one"
    )


def test_files_that_are_no_network(library: Path, tmp_path: Path) -> None:
    whole, path = library.read_bytes(), tmp_path / "other.so"
    for size in (0, 3, 63, 64, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InvalidValueError, match="truncated|no shared library"):
            load_network(path)
    with pytest.raises(InvalidValueError, match="cannot be read: No such file"):
        load_network(tmp_path / "none.so")
    source = tmp_path / "other.c"
    source.write_text("int other(void) { return 1; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, source], check=True)
    with pytest.raises(InvalidValueError, match="no network that was saved by autotune"):
        load_network(path)
    newer = 'const char *autotune_network_about(void) { return "{\\"version\\": 2}"; }\n'
    source.write_text(newer)
    path = tmp_path / "newer.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, source], check=True)
    with pytest.raises(InvalidValueError, match="of version 2, and not"):
        load_network(path)


def test_large_weights_lie_beside_it(tmp_path: Path) -> None:
    path, weights = tmp_path / "large.so", tmp_path / "large.weights"
    lines = save_library(NAME, built_plan(), path, most_embedded=1000)
    assert "which have to stay beside large.so" in lines[1]
    assert weights.stat().st_size > 4096 + 4 * 40 * 24
    check(load_network(path)(*given()))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    moved = folder / "large.so"
    shutil.copy(path, moved)
    network = load_network(moved)
    with pytest.raises(
        InvalidValueError, match=r"elsewhere/large\.weights, cannot be read: No such"
    ):
        network(*given())
    whole = bytearray(weights.read_bytes())
    for damaged in (whole[:-1], bytes([whole[0] ^ 1]) + whole[1:]):
        (folder / "large.weights").write_bytes(damaged)
        with pytest.raises(InvalidValueError, match="it is truncated, or of another one"):
            network(*given())
    (folder / "large.weights").write_bytes(whole)
    check(network(*given()))


def test_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = partial(save_library, NAME, built_plan())
    with pytest.raises(InvalidValueError, match=r"ends in \.so, and .*net\.tar' does not"):
        save(tmp_path / "net.tar")
    with pytest.raises(InvalidValueError, match="there is no folder"):
        save(tmp_path / "none" / "net.so")
    (tmp_path / "net.h").write_text("int mine;\n")
    with pytest.raises(InvalidValueError, match=r"net\.h' exists and is no header of an export"):
        save(tmp_path / "net.so")
    for variables in ({"CC": "no-such-compiler"}, {"CC": "", "PATH": ""}):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(BuildFailed, match="is linked by a C compiler, and there is no"):
            save(tmp_path / "other.so")
    assert sorted(it.name for it in tmp_path.iterdir()) == ["net.h"]


def test_functions_of_what_is_no_object_file_keep_their_names() -> None:
    with pytest.raises(BuildFailed, match="no object file of ELF with 64 bits"):
        with_prefix(b"!<arch>", "program0_")


FFI = """
import sys
sys.modules.update(tvm=None, torch=None)  # they cannot be imported
import numpy as np
import tvm_ffi
import autotune
from autotune.backends import aligned_copy, aligned_empty

path, folder = sys.argv[1:]
network = autotune.load_network(path)  # before TVM-FFI has loaded it
module = tvm_ffi.load_module(path)
inputs = [aligned_copy(np.load(f"{folder}/{number}.npy")) for number in range(3)]
outputs = [aligned_empty(it.shape, it.dtype) for it in network.outputs]
tensors = [tvm_ffi.from_dlpack(it) for it in (*inputs, *outputs)]
module.main(*tensors)
assert all(map(np.array_equal, network(*inputs), outputs))

def refused(kind, said, *arguments):
    try:
        module.main(*arguments)
    except kind as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)

refused(TypeError, "takes 9 tensors, 3 inputs and then 6 outputs, not 3", *tensors[:3])
refused(TypeError, "argument 2 (rows) has to be of int64", tensors[0], *tensors[2:3] * 2,
        *tensors[3:])
inputs[1][0] = 450
refused(RuntimeError, "main: take: index 450 is not from -450 to 449", *tensors)
"""


@pytest.mark.needs("tvm")
def test_tvm_ffi_calls_it(plain: Path, tmp_path: Path) -> None:
    for number, array in enumerate(given()):
        np.save(tmp_path / f"{number}.npy", array)
    run_python("-c", FFI, str(plain), str(tmp_path))


@pytest.mark.needs("torch")
def test_torch_calls_it(library: Path) -> None:
    import torch

    network = load_network(library)
    inputs = [*map(torch.from_numpy, given())]
    assert all(isinstance(it, torch.Tensor) for it in network(*inputs))
    network.as_torch_operator("autotune_tests::saved")
    found = torch.ops.autotune_tests.saved(*inputs)
    check([it.view(torch.uint16) if it.dtype == torch.bfloat16 else it for it in found])
    assert found[4].dtype == torch.bfloat16

    def doubled(x: torch.Tensor, rows: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        first: torch.Tensor = torch.ops.autotune_tests.saved(x * 2, rows, by)[0]
        return first + 1

    whole = torch.compile(doubled, backend="eager", fullgraph=True)
    torch.testing.assert_close(whole(*inputs), doubled(*inputs))
    with pytest.raises(InvalidValueError, match="'saved' is no name of an operator"):
        network.as_torch_operator("saved")

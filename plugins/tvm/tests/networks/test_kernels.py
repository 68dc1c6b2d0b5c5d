"""Records of the native backend are kernels that a network calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.networks.executable import RelaxNetwork
from autotune_tvm.networks.frontend import RelaxFrontend
from autotune_tvm.networks.graph import tensor_calls
from autotune_tvm.networks.kernels import only_called
from autotune_tvm.networks.program import RelaxProgram
from relax_networks import network, op, two_layers, weights
from tvm import relax

from autotune.backends import BuildFailed
from autotune.backends.native import NativeBackend
from autotune.networks import LoadOptions
from autotune.sketches import Candidate
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target, detect_cpu
from autotune.testing.programs import sample_candidates

HERE = detect_cpu().with_cores(2)


def program_of(module: Any) -> RelaxProgram:
    """A loaded network for two threads."""
    found = RelaxFrontend().load(module, None, LoadOptions(HERE, 2))
    assert isinstance(found, RelaxProgram)
    return found


def candidates_of(program: RelaxProgram) -> dict[str, Candidate]:
    """A candidate of every sketch of the first task."""
    workload = TVMBackend().import_program(program.tasks[0].program).workload
    found = sample_candidates(NativeBackend(), workload, HERE)
    return {candidate.sketch.name: candidate for candidate in found}


def record_of(candidate: Candidate, target: Target = HERE, baseline: str = "") -> Record:
    """What the native backend records of a candidate."""
    key = MeasureKey(target.fingerprint, "native", "1", "1", 2, "warm-3")
    outcome, json = Outcome("ok", 1e-3, (1e-3,)), target.to_json()
    return Record(
        "run", 0, candidate, key, json, "sketch-1", outcome, 0.0, program=None, baseline=baseline
    )


def built(program: RelaxProgram, sketch: str) -> RelaxNetwork:
    """The network with a kernel of a sketch for its first task."""
    record = record_of(candidates_of(program)[sketch])
    compiled = program.build({program.tasks[0].name: record}, HERE, 2)
    assert isinstance(compiled, RelaxNetwork)
    return compiled


def layers_of(x: Any) -> Any:
    for seed in (0, 1):
        x = np.maximum(x @ weights(24, 24, seed=seed), 0)
    return x


@pytest.mark.parametrize("sketch", ["direct", "packed-root", "packed-root-rows"])
def test_kernels_are_called_and_weights_packed_before(sketch: str) -> None:
    program = program_of(two_layers())
    (task,) = program.tasks
    compiled = built(program, sketch)
    assert compiled.packed == ({} if sketch == "direct" else {task.name: 1})
    x = weights(24, 24, seed=5)
    np.testing.assert_allclose(compiled(x)[0], layers_of(x), rtol=1e-4, atol=1e-4)
    assert compiled.profile([x])[task.name] > 0


def test_an_untuned_program_of_the_backend_is_its_kernel() -> None:
    program = program_of(two_layers())
    candidate = candidates_of(program)["direct"]
    record = record_of(candidate, baseline="naive loop nest")
    assert record.scheduled is None
    compiled = program.build({program.tasks[0].name: record}, HERE, 2)
    x = weights(24, 24, seed=5)
    np.testing.assert_allclose(compiled(x)[0], layers_of(x), rtol=1e-4, atol=1e-4)


def test_kernels_take_the_shapes_and_the_order_of_functions() -> None:
    """A number, several outputs, and operands that are no rows of the first one's shape."""

    def body(emit: Any, x: Any, y: Any, scale: Any) -> Any:
        halves = emit(op.split(emit(op.multiply(emit(op.subtract(y, x)), scale)), 2, axis=1))
        return emit(op.concat([emit(relax.TupleGetItem(halves, it)) for it in (1, 0)], axis=1))

    shapes = [((1, 8, 6), "float32"), ((3, 8, 1), "float32"), ((), "float32")]
    program = program_of(network(shapes, body))
    records = {}
    for task in program.tasks:
        workload = TVMBackend().import_program(task.program).workload
        records[task.name] = record_of(sample_candidates(NativeBackend(), workload, HERE)[0])
    compiled = program.build(records, HERE, 2)
    x, y, scale = weights(1, 8, 6), weights(3, 8, 1, seed=1), np.array(3, np.float32)
    whole = (y - x) * scale
    wanted = np.concatenate([whole[:, 4:], whole[:, :4]], axis=1)
    np.testing.assert_allclose(compiled(x, y, scale)[0], wanted, rtol=1e-5)


ELSEWHERE = """
import ctypes, os, sys
for name in ("autotune", "autotune_tvm", "llvmlite"):
    sys.modules[name] = None  # it cannot be imported
import numpy as np
import tvm, tvm_ffi
from tvm import relax

library, given, wanted = sys.argv[1], np.load(sys.argv[2]), np.load(sys.argv[3])
main = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())["main"]

slot = ctypes.c_void_p.in_dll(ctypes.CDLL(library), "__TVMBackendParallelLaunch")
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
launch, launched = kind(slot.value), []
counted = kind(lambda *arguments: launched.append(1) or launch(*arguments))
slot.value = ctypes.cast(counted, ctypes.c_void_p).value

def is_right():
    return np.allclose(main(tvm.runtime.tensor(given)).numpy(), wanted, rtol=1e-4, atol=1e-4)

assert is_right() and len(launched) == 2, launched
child = os.fork()
if not child:  # which has none of the pool's threads
    os._exit(0 if is_right() and len(launched) == 2 else 1)
assert os.waitpid(child, 0)[1] == 0

room = np.empty(given.nbytes + 128, np.uint8)
begin = -room.ctypes.data % 64 + 16
apart = room[begin : begin + given.nbytes].view(given.dtype).reshape(given.shape)
apart[...] = given
try:
    main(tvm_ffi.from_dlpack(apart))
except Exception as error:
    assert "argument 1" in str(error) and "no multiple of 64" in str(error), error
else:
    raise AssertionError("an unaligned array was taken")
assert is_right()
print("done")
"""


@pytest.mark.needs("gcc")
def test_a_saved_network_needs_neither_autotune_nor_llvmlite(tmp_path: Path) -> None:
    """Its kernels run on TVM's threads, but in forked processes; and refuse unaligned arrays."""
    program = program_of(two_layers())
    compiled = built(program, "packed-root")
    x = weights(24, 24, seed=5)
    for _ in range(2):  # to save it changes nothing
        compiled.save(tmp_path / "network.so")
        np.testing.assert_allclose(compiled(x)[0], layers_of(x), rtol=1e-4, atol=1e-4)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "wanted.npy", layers_of(x))
    names = [str(tmp_path / name) for name in ("network.so", "x.npy", "wanted.npy")]
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.split() == ["done"], done.stderr


def test_without_a_c_compiler_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    with pytest.raises(
        BuildFailed, match=r"native kernels is linked .* no '/nowhere/cc': install"
    ):
        built(program_of(two_layers()), "direct")


def test_a_function_without_a_kernel_is_tir_and_says_so() -> None:
    """A processor of which nothing is known."""
    program = program_of(two_layers())
    record = record_of(candidates_of(program)["packed-root"])
    (task,) = program.tasks
    least = evolve(HERE, features=(), processor="unknown")
    told = f"function '{task.name}' is TIR, no native kernel: kernels are exported for"
    with pytest.warns(UserWarning, match=told):
        compiled = program.build({task.name: record}, least, 2)
    x = weights(24, 24, seed=5)
    np.testing.assert_allclose(compiled(x)[0], layers_of(x), rtol=1e-4, atol=1e-4)


def test_functions_that_are_used_otherwise_keep_their_place() -> None:
    program = program_of(two_layers())
    (task,) = program.tasks
    assert task.name in only_called(program.module)
    ((_, call), *_) = tensor_calls(program.module)
    builder = relax.BlockBuilder(program.module)
    x = relax.Var("x", relax.TensorType((24, 24), "float32"))
    with builder.function("other", [x]):
        in_place = relax.op.call_tir_inplace(
            call.args[0], [x, call.args[1].fields[1]], [0], list(call.ty_args)
        )
        builder.emit_func_output(builder.emit(in_place))
    assert task.name not in only_called(builder.get())

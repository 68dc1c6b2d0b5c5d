"""Records of the native backend are kernels that a module calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from attrs import evolve
from autotune_tvm.networks.apply_records import ApplyRecords
from autotune_tvm.networks.graph import tensor_calls
from autotune_tvm.networks.kernels import only_called
from relax_networks import network, op, operators, run, two_layers, weights
from relax_records import applied, constants, cuts, fused, stored, with_sketch
from tvm import relax

from autotune.sketches import UNTUNED
from autotune.store.records import Baseline, Outcome
from autotune.store.sqlite import open_database
from autotune.targets import detect_cpu

HERE = detect_cpu().with_cores(2)
SHAPE = ((24, 24), "float32")


def built(sketch: str, folder: Path) -> Any:
    """Two layers with kernels of a sketch."""
    return with_sketch(fused(two_layers()), sketch, "native", HERE, folder)


def layers_of(x: Any) -> Any:
    for seed in (0, 1):
        x = np.maximum(x @ weights(24, 24, seed=seed), 0)
    return x


@pytest.mark.parametrize("sketch", ["direct", "packed-root", "packed-root-rows"])
def test_kernels_are_called_and_weights_packed_before(sketch: str, tmp_path: Path) -> None:
    module = built(sketch, tmp_path)
    assert operators(module) == ["call_dps_packed"] * 2
    assert (SHAPE in constants(module)) == (sketch == "direct")
    x = weights(24, 24, seed=5)
    np.testing.assert_allclose(run(module, x)[0], layers_of(x), rtol=1e-4, atol=1e-4)


def test_where_the_untuned_program_is_faster_nothing_changes(tmp_path: Path) -> None:
    module = fused(two_layers())
    (cut,) = cuts(module, "native", HERE)
    record = cut.record(cut.candidates()["direct"])
    faster = Outcome("ok", 1e-6, (1e-6,))
    baseline = Baseline.of(evolve(record, baseline=UNTUNED, outcome=faster))
    path = stored(tmp_path / "records.db", [record])
    with open_database(path) as database:
        database.append_baseline(baseline)
    made = ApplyRecords(path, target=HERE)(module)
    assert operators(made) == ["call_tir"] * 2
    assert "tirx.is_scheduled" not in (made[cut.name].attrs or {})


def test_kernels_take_the_shapes_and_the_order_of_functions(tmp_path: Path) -> None:
    """A number, several outputs, and operands that are no rows of the first one's shape."""

    def body(emit: Any, x: Any, y: Any, scale: Any) -> Any:
        halves = emit(op.split(emit(op.multiply(emit(op.subtract(y, x)), scale)), 2, axis=1))
        return emit(op.concat([emit(relax.TupleGetItem(halves, it)) for it in (1, 0)], axis=1))

    shapes = [((1, 8, 6), "float32"), ((3, 8, 1), "float32"), ((), "float32")]
    module = relax.transform.LegalizeOps()(network(shapes, body))
    records = [cut.record() for cut in cuts(module, "native", HERE)]
    made = applied(module, records, HERE, tmp_path)
    assert operators(module).count("call_tir") == 4 and "call_tir" not in operators(made)
    x, y, scale = weights(1, 8, 6), weights(3, 8, 1, seed=1), np.array(3, np.float32)
    whole = (y - x) * scale
    wanted = np.concatenate([whole[:, 4:], whole[:, :4]], axis=1)
    np.testing.assert_allclose(run(made, x, y, scale)[0], wanted, rtol=1e-5)


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
def test_an_exported_module_needs_neither_autotune_nor_llvmlite(tmp_path: Path) -> None:
    """Its kernels run on TVM's threads, but in forked processes; and refuse unaligned arrays."""
    made = relax.build(built("packed-root", tmp_path), tvm.target.Target({"kind": "llvm"}))
    made.export_library(str(tmp_path / "network.so"))
    x = weights(24, 24, seed=5)
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


def test_without_a_c_compiler_one_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    wanted = r"native kernels is linked .* no '/nowhere/cc': install"
    with pytest.raises(RuntimeError, match=wanted):
        built("direct", tmp_path)


def test_a_function_without_a_kernel_is_tir_and_says_so(tmp_path: Path) -> None:
    """A processor of which nothing is known."""
    module = fused(two_layers())
    least = evolve(HERE, features=(), processor="unknown")
    (cut,) = cuts(module, "native", HERE)
    record = evolve(cut, target=least).record(cut.candidates()["packed-root"])
    told = f"function '{cut.name}' is TIR, no native kernel: kernels are exported for"
    with pytest.warns(UserWarning, match=told):
        made = applied(module, [record], least, tmp_path)
    assert made[cut.name].attrs["tirx.is_scheduled"] and SHAPE not in constants(made)
    x = weights(24, 24, seed=5)
    np.testing.assert_allclose(run(made, x)[0], layers_of(x), rtol=1e-4, atol=1e-4)


def test_functions_that_are_used_otherwise_keep_their_place(tmp_path: Path) -> None:
    module = fused(two_layers())
    ((name, call), *_) = tensor_calls(module)
    assert name in only_called(module)
    builder = relax.BlockBuilder(module)
    x = relax.Var("x", relax.TensorType(*SHAPE))
    with builder.function("other", [x]):
        in_place = relax.op.call_tir_inplace(
            call.args[0], [x, call.args[1].fields[1]], [0], list(call.ty_args)
        )
        builder.emit_func_output(builder.emit(in_place))
    used = builder.get()
    assert name not in only_called(used)
    (cut,) = cuts(used, "native", HERE)
    made = applied(used, [cut.record(cut.candidates()["direct"])], HERE, tmp_path)
    assert made[name].attrs["tirx.is_scheduled"]
    assert operators(made) == ["call_tir"] * 2

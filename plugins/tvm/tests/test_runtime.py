"""Import of TVM in a worker."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from autotune_tvm import runtime
from autotune_tvm.runtime import WORKER_ENVIRONMENT
from python_processes import run_python

PROGRAM = """
import gc, sys
from autotune_tvm.backend import TVMBackend
TVMBackend().warm_up()
print("torch" in sys.modules, "tvm" in sys.modules, "tvm.s_tir.tensor_intrin" in sys.modules)
print(gc.isenabled())
import torch
print(torch.is_here)
"""

REGISTERED = """
import sys
IMPORT
import tvm
from tvm_ffi import registry
apart = "tvm.runtime.disco"  # and what that would register
print(sorted(registry.get_registered_type_keys()))
print(sorted(it for it in registry.list_global_func_names() if "process_pool" not in it))
for name in sorted(it for it in sys.modules if it.startswith("tvm") and not it.startswith(apart)):
    print(name, sorted(dir(sys.modules[name])))
for name in tvm.ir.Op.list_op_names():
    print(name, tvm.ir.Op.get(name).get_attr("TScriptPrinterName"))
"""

FORKING = """
import os, sys, threading, warnings
import numpy as np
from autotune.backends import BuildRequest
from autotune.ir.workloads import gemm
from autotune.targets import detect_cpu
from autotune.testing.programs import sample_candidates
from autotune.runtime.function import TunedFunction
from autotune_tvm.backend import TVMBackend

workload, backend, target = gemm(m=64, n=64, k=64), TVMBackend(), detect_cpu().with_cores(2)
(candidate, *_) = sample_candidates(backend, workload, target)
built = backend.build(BuildRequest(workload, None, candidate, target, 2))
function = TunedFunction(workload, built)
array = np.ones((64, 64), np.float32)

def call():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        right = (function(array, array) == 64).all()
    print(right, len(caught), *("forked" in str(it.message) for it in caught), flush=True)

def elsewhere():
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()

call()
for calls in ((call, call), (elsewhere,)):
    child = os.fork()
    if not child:
        for it in calls:
            it()
        os._exit(0)
    os.waitpid(child, 0)
"""

KERNELS = (
    "tvm.contrib.cblas.matmul",
    "tvm.contrib.mkl.matmul",
    "tvm.contrib.dnnl.matmul",
    "runtime.DNNLJSONRuntimeCreate",
    "tvm.contrib.nnpack.fully_connected_inference",
    "relax.ext.xnnpack",
)


@pytest.mark.parametrize("name", KERNELS)
def test_the_wheel_has_no_kernels_of_vendors(name: str) -> None:
    """A wheel that has one makes docs/networks.md wrong; it should be among the baselines."""
    import tvm

    assert tvm.get_global_func(name, allow_missing=True) is None


def test_a_worker_imports_tvm_without_torch_and_may_import_it_later(
    tmp_path: Path,
) -> None:
    (tmp_path / "torch.py").write_text("is_here = True\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **WORKER_ENVIRONMENT, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.split() == ["False", "True", "False", "True", "True"]


def test_programs_run_in_a_child_of_a_fork() -> None:
    """On one thread where those of the pool were left behind, which is said once."""
    written = run_python("-c", FORKING)
    assert written.splitlines() == ["True 0", "True 1 True", "True 0", "True 0"]


@pytest.mark.slow
def test_importing_tvm_leaves_the_garbage_collector_off() -> None:
    text = "import gc; gc.disable(); from autotune_tvm import runtime; runtime.load()"
    assert run_python("-c", f"{text}; print(gc.isenabled())").strip() == "False"


@pytest.mark.slow
def test_what_is_imported_in_less_time_is_the_same() -> None:
    plain = run_python("-c", REGISTERED.replace("IMPORT", ""))
    quick = run_python(
        "-c", REGISTERED.replace("IMPORT", "from autotune_tvm import runtime; runtime.load()")
    )
    assert len(plain.splitlines()) > 1500 and quick.splitlines() == plain.splitlines()


def test_a_module_that_was_left_out_can_be_imported() -> None:
    runtime.load()
    assert importlib.import_module("tvm.runtime.disco").DRef

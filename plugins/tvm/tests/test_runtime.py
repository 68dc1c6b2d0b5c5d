"""How a worker imports TVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from autotune_tvm.runtime import WORKER_ENVIRONMENT

PROGRAM = """
import sys
from autotune_tvm.backend import TVMBackend
TVMBackend().warm_up()
print("torch" in sys.modules, "tvm" in sys.modules)
import torch
print(torch.is_here)
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
    """Where one has, docs/networks.md is wrong, and they should be among the baselines."""
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
    assert done.stdout.split() == ["False", "True", "True"]

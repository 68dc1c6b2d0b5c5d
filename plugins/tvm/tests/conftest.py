"""Shared by the tests of the TVM backend; all of them need TVM."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

# Read when TVM starts its pool: the same as in a worker.
os.environ.setdefault("TVM_NUM_THREADS", "2")
os.environ.setdefault("TVM_BIND_THREADS", "0")

pytest.importorskip("tvm")

from autotune_tvm.backend import TVMBackend

from autotune.backends import BuildRequest
from autotune.ir.workloads import Workload, random_inputs, reference_outputs
from autotune.sketches import Candidate
from autotune.targets import Target, detect_cpu
from autotune.testing.guarded_arrays import guarded_calls


@pytest.fixture(scope="session")
def target() -> Target:
    """This machine."""
    return detect_cpu()


@pytest.fixture(scope="session")
def backend() -> TVMBackend:
    """The backend, TVM loaded."""
    backend = TVMBackend()
    backend.warm_up()
    return backend


@pytest.fixture(scope="session")
def check(backend: TVMBackend, target: Target) -> Callable[..., Any]:
    """Builds a workload (or an imported program), runs it, and compares it with numpy.

    A program that reads or writes beside its arrays ends this process.
    """

    def checked(
        workload: Workload,
        program: str | None = None,
        candidate: Candidate | None = None,
        threads: int = 1,
    ) -> Any:
        arrays = random_inputs(workload, np.random.default_rng(7))
        # Several functions are defined for positive numbers only.
        if workload.parameters.get("positive"):
            arrays = {name: np.abs(array) + np.float32(0.25) for name, array in arrays.items()}
        request = BuildRequest(
            workload=workload,
            program=program,
            candidate=candidate,
            target=target,
            threads=threads,
        )
        inputs = [arrays[tensor.name] for tensor in workload.inputs]
        expected = reference_outputs(workload, arrays)
        for call in guarded_calls(backend.build(request), workload, inputs):
            call.poison()
            call.run()
            outputs = call.outputs()
            assert len(outputs) == len(workload.outputs)
            for name, output in zip(workload.outputs, outputs, strict=True):
                assert output.dtype == expected[name].dtype
                if output.dtype.kind == "f":
                    np.testing.assert_allclose(output, expected[name], rtol=2e-5, atol=2e-5)
                else:
                    np.testing.assert_array_equal(output, expected[name])
        return call

    return checked

"""Shared by the tests of the TVM backend; all of them need TVM."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Read when TVM starts its pool: the same as in a worker.
os.environ.setdefault("TVM_NUM_THREADS", "2")
os.environ.setdefault("TVM_BIND_THREADS", "0")
# Where programs follow one another at once, threads that watch for the next one only disturb it.
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "1000")


import fake_cuda
from autotune_tvm import runtime
from autotune_tvm.backend import TVMBackend
from fake_torch import FakeTorch

from autotune.backends import BuildRequest
from autotune.ir.workloads import Workload
from autotune.runtime.device import shared_device
from autotune.sketches import Candidate
from autotune.targets import CudaDriver, Target, detect_cpu, preset
from autotune.testing.programs import check_program

runtime.load()


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the caches that processes share out of the user's own folder."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of a CUDA driver without a device; one for all workers of a session."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    return fake_cuda.library_in(shared / "fake-cuda")


@pytest.fixture
def cuda(fake_driver: Path, tmp_path: Path) -> Iterator[fake_cuda.FakeCuda]:
    """A device that is found here and in children of this process: a fake one."""
    with pytest.MonkeyPatch.context() as patch:
        yield fake_cuda.install(fake_driver, tmp_path, patch)


@pytest.fixture
def torch(cuda: fake_cuda.FakeCuda) -> Iterator[FakeTorch]:
    """Torch on the fake device, whose context is current, as it is where torch has been used."""
    device = shared_device(preset("h100"))
    device.driver._call("cuCtxPushCurrent_v2", device.context)
    yield FakeTorch(device, cuda.patch)
    device.driver._made("cuCtxPopCurrent_v2")


@pytest.fixture
def counted(cuda: fake_cuda.FakeCuda) -> Callable[[], dict[str, int]]:
    """Count calls of the driver's functions since the last time."""
    calls: dict[str, int] = {}
    original = CudaDriver._call

    def called(driver: CudaDriver, name: str, *arguments: Any) -> None:
        calls[name] = calls.get(name, 0) + 1
        original(driver, name, *arguments)

    cuda.patch.setattr(CudaDriver, "_call", called)

    def taken() -> dict[str, int]:
        found = dict(calls)
        calls.clear()
        return found

    return taken


@pytest.fixture(scope="session")
def target() -> Target:
    """Return the target of this machine."""
    return detect_cpu()


@pytest.fixture(scope="session")
def backend() -> TVMBackend:
    """The backend, TVM loaded."""
    backend = TVMBackend()
    backend.warm_up()
    return backend


@pytest.fixture(scope="session")
def check(backend: TVMBackend, target: Target) -> Callable[..., None]:
    """Builds a workload (or an imported program) for this machine, and checks what it computes."""

    def checked(
        workload: Workload,
        program: str | None = None,
        candidate: Candidate | None = None,
        threads: int = 1,
    ) -> None:
        check_program(backend, BuildRequest(workload, program, candidate, target, threads))

    return checked

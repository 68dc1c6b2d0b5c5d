"""After a parallel program the threads of TVM's pool can be made to keep still."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

# Time that other threads take while the main thread sleeps is what they spend on watching.
TEXT = """
    import os, sys, threading, time
    import numpy as np
    from autotune.backends import BuildRequest, bind_copies
    from autotune.spaces.sketch_space import SketchSpace
    from autotune.targets import Target
    from autotune.workloads import gemm
    from autotune_tvm.backend import TVMBackend

    def seconds_of_others():
        total = 0
        for task in os.listdir("/proc/self/task"):
            if int(task) != threading.get_native_id():
                with open(f"/proc/self/task/{task}/schedstat") as file:
                    total += int(file.read().split()[0])
        return total * 1e-9

    backend, target = TVMBackend(), Target.detect()
    workload = gemm(m=192, n=256, k=64)
    space = SketchSpace(workload, target, backend.limits(target))
    candidate = next(iter(space.sample(1, np.random.default_rng(0))))
    executable = backend.build(BuildRequest(workload, None, candidate, target, 2))
    call = bind_copies(executable, workload, [np.ones(t.shape, t.dtype) for t in workload.inputs])
    call.time(20)
    if sys.argv[1] == "park":
        backend.park()
    begin = seconds_of_others()
    time.sleep(0.2)
    print(seconds_of_others() - begin, flush=True)
    os._exit(0)  # threads that spin are not waited for
"""


def spun(act: str, spins: str) -> float:
    """Seconds that the other threads compute while the main thread sleeps."""
    environment = {
        **os.environ,
        "TVM_NUM_THREADS": "2",
        "TVM_BIND_THREADS": "0",
        "TVM_THREAD_POOL_SPIN_COUNT": spins,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TEXT), act],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU has no second thread")
def test_nothing_runs_after_parking() -> None:
    assert spun("go on", spins="2000000000") > 0.001
    assert spun("park", spins="100000") == 0.0  # 20 milliseconds of a CPU

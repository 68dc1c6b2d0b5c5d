"""Programs that tell what the other threads of a process do, of any backend."""

from __future__ import annotations

import textwrap

from needs import skip_here
from python_processes import run_python

# Binds a program for THREADS threads of the backend BACKEND to `call`.
_PROGRAM = """
    import importlib, os, sys, threading, time
    import numpy as np
    from autotune.targets import detect_cpu
    from autotune.backends import BuildRequest, bind_copies
    from autotune.spaces.sketch_space import SketchSpace
    from autotune.targets import Target
    from autotune.ir.workloads import gemm

    def seconds_of_others():
        total = 0
        for task in os.listdir("/proc/self/task"):
            if int(task) != threading.get_native_id():
                with open(f"/proc/self/task/{task}/schedstat") as file:
                    total += int(file.read().split()[0])
        return total * 1e-9

    module, name = os.environ["BACKEND"].split(":")
    backend, target = getattr(importlib.import_module(module), name)(), detect_cpu()
    workload = gemm(m=192, n=256, k=64)
    space = SketchSpace(workload, target, backend.limits(target))
    candidate = next(iter(space.sample(1, np.random.default_rng(0))))
    threads = int(os.environ["THREADS"])
    executable = backend.build(BuildRequest(workload, None, candidate, target, threads))
    call = bind_copies(executable, workload, [np.ones(t.shape, t.dtype) for t in workload.inputs])
    call.run()
"""

COUNT_THREADS = """
    others, own = seconds_of_others(), time.thread_time()
    call.time(2000)
    others, own = seconds_of_others() - others, time.thread_time() - own
    print("others" if others > 0.05 * own else "alone")
"""

# Time that other threads take while the main thread sleeps is what they spend on watching. Parking
# gives up after a second on a machine so busy that they have not got round to falling asleep.
_PARK = """
    for _ in range(10):
        call.time(20)
        begin = time.monotonic()
        if os.environ["ACT"] == "park":
            backend.park()
        is_busy = time.monotonic() - begin >= 1
        if not is_busy:
            break
    if is_busy:
        print("busy", flush=True)
        os._exit(0)
    begin = seconds_of_others()
    # Those that go on may be kept from a CPU for a while.
    for _ in range(1 if os.environ["ACT"] == "park" else 10):
        time.sleep(0.2)
        spun = seconds_of_others() - begin
        if spun:
            break
    print(spun, flush=True)
    os._exit(0)  # threads that spin are not waited for
"""


def in_fresh_process(text: str, **environment: str | None) -> str:
    """Output of a new interpreter; variables that are None are not in its environment."""
    return run_python("-c", textwrap.dedent(text), **environment).strip()


def with_program(text: str, backend: str, threads: int, **environment: str | None) -> str:
    """Output of ``text`` in a new interpreter that has a program of a backend.

    Args:
        text: May use ``call``, ``backend`` and ``seconds_of_others()``.
        backend: Import string of the backend.
        threads: Threads that the program is built for.
        environment: Variables of the new process.
    """
    return in_fresh_process(_PROGRAM + text, BACKEND=backend, THREADS=str(threads), **environment)


def seconds_spun(act: str, backend: str, **environment: str) -> float:
    """Seconds that other threads compute while the main one sleeps after a parallel program.

    Args:
        act: ``"park"`` to park them before, or anything else.
        backend: Import string of the backend.
        environment: Variables of the new process.
    """
    told = with_program(_PARK, backend, 2, ACT=act, **environment)
    if told == "busy":
        skip_here("others leave threads no time to sleep, which parking does not wait for")
    return float(told)

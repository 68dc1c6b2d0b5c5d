"""TVM itself: imported on first use, with its number of threads set."""

from __future__ import annotations

import os
import threading
import warnings
from typing import Any

from autotune.errors import UnsupportedTarget
from autotune_tvm.quick_import import environment, import_tvm

__all__ = ["WORKER_ENVIRONMENT", "environment", "load", "use_threads"]

WORKER_ENVIRONMENT = {
    # By default TVM pins its threads, and the one that calls it, to the first CPUs of the machine
    # by number: worker processes would all build on CPU 0, and a container or `taskset` that
    # grants other CPUs is ignored. The scheduler does better.
    "TVM_BIND_THREADS": "0",
    # Idle threads of the pool poll this often before they sleep. The default, 300000, keeps a core
    # busy for a tenth of a second after every parallel kernel, into whatever is timed next; this
    # many last a fifth of a millisecond, longer than any gap between the calls of one measurement.
    "TVM_THREAD_POOL_SPIN_COUNT": "1000",
    # Where torch is installed, importing TVM would import it, which takes longer than all the
    # rest, and maybe compile an extension. TVM's own variable prevents the second only.
    "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
    "AUTOTUNE_TVM_WITHOUT_TORCH": "1",
}
"""Environment of every worker, in addition to ``TVM_NUM_THREADS``."""

_configured = threading.local()


def load() -> Any:
    """Import TVM, in a worker without torch.

    Raises:
        UnsupportedTarget: it cannot be imported; says why.
    """
    try:
        return import_tvm(["torch"] if os.environ.get("AUTOTUNE_TVM_WITHOUT_TORCH") == "1" else [])
    except (ImportError, OSError) as error:
        raise UnsupportedTarget(f"TVM cannot be imported: {error}") from error


def use_threads(threads: int) -> None:
    """Make parallel loops that the calling thread runs use ``threads`` threads.

    TVM keeps one pool per calling thread, made on first use and never enlarged. Its own choice of
    size is half of the CPUs; here it is made with a thread for every CPU, or as many as the
    environment says, and used in part. A fork copies the pool of the thread that forks without
    its threads: parallel loops of that thread then run on it alone, in the child.
    """
    process = os.getpid()
    if getattr(_configured, "found", None) == (process, threads):
        return
    configure = load().get_global_func("runtime.config_threadpool")
    if getattr(_configured, "process", process) == process:
        _use_own(configure, threads)
    else:
        _use_forked(configure, threads)
    _configured.found = process, threads


def _use_own(configure: Any, threads: int) -> None:
    with environment(TVM_BIND_THREADS="0"):
        if not hasattr(_configured, "process"):
            _configure(configure, max(threads, _pool_size()))
            _configured.process = os.getpid()
        _configure(configure, threads)
        found = int(load().get_global_func("runtime.NumThreads")())
    if found < threads:
        warnings.warn(
            f"TVM's pool has {found} threads in this process: programs built for {threads} run "
            f"on {found}; set TVM_NUM_THREADS={threads} before the process starts",
            RuntimeWarning,
            stacklevel=4,
        )


def _use_forked(configure: Any, threads: int) -> None:
    _configure(configure, 1)
    if threads > 1:
        warnings.warn(
            f"this process was forked from one that had run programs, and a fork copies no "
            f"threads: programs built for {threads} run on 1; call them from a new thread, or "
            "start processes by 'spawn'",
            RuntimeWarning,
            stacklevel=4,
        )


def _configure(configure: Any, threads: int) -> None:
    # The number of CPUs named here is the number of threads; with binding off the CPUs themselves
    # are not used. With one thread, parallel loops run on the calling thread without the pool.
    share_cpus = -3
    configure(share_cpus, threads, [str(cpu) for cpu in range(threads)])


def _pool_size() -> int:
    said = os.environ.get("TVM_NUM_THREADS", "")
    return int(said) if said.isdigit() and int(said) > 0 else len(os.sched_getaffinity(0))

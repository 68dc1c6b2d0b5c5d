"""The processes of the runner ``rpc`` on this host."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from autotune.backends.native import NativeBackend
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.measure.engines import ArtefactStore
from autotune.measure.pool import WorkerPool
from autotune.plugins import Context
from autotune.process.channel import Message
from autotune.process.memory import default_memory_limit
from autotune.process.private_folder import PrivateFolder
from autotune_tvm.backend import TVMBackend
from autotune_tvm.rpc.options import RPCOptions

__all__ = ["boot_of_this_host", "check_context", "worker_pool"]

_BACKENDS = {
    TVMBackend.name: "autotune_tvm.rpc.backend:RPCBackend",
    NativeBackend.name: "autotune_tvm.rpc.native:NativeRPCBackend",
}
_BUILDER, _HOLDER = "autotune.measure.worker", "autotune_tvm.rpc.worker"


def worker_pool(
    context: Context,
    options: RPCOptions,
    folder: PrivateFolder,
    store: ArtefactStore,
    hello: Callable[[int], Message] | None = None,
    *,
    workers: int = 1,
) -> WorkerPool:
    """Processes that build, or that hold sessions with servers; not started.

    Args:
        context: Of the runner.
        options: Of the runner.
        folder: For temporary files.
        store: What builds make, and what jobs need.
        hello: What else is in the first message to a process that holds a session; None for
            processes that build.
        workers: How many.
    """
    holds = hello is not None
    told = {"artefacts": str(store.folder), "only_times": holds, "threads": context.threads}
    memory = context.protocol.memory_bytes
    environment = TVMBackend().worker_environment(context.threads)
    return WorkerPool(
        _BACKENDS[context.backend],
        context.threads,
        {**environment, **options.environment()},
        workers=workers,
        deadlines=context.protocol.deadlines,
        memory_bytes=default_memory_limit() if memory is None else memory,
        folder=folder,
        clock=time.monotonic,
        hello=lambda index: {**told, **(hello(index) if hello is not None else {})},
        module=_HOLDER if holds else _BUILDER,
    )


def check_context(context: Context) -> None:
    """Refuse what servers cannot do.

    Raises:
        InvalidValueError: says what that is.
        UnsupportedTarget: nothing can be built for the target.
    """
    if context.backend not in _BACKENDS:
        raise InvalidValueError(
            f"runner 'rpc' sends programs of backends {' and '.join(map(repr, _BACKENDS))} to "
            f"TVM's servers, not those of {context.backend!r}"
        )
    if context.target.kind != "cpu":
        raise UnsupportedTarget(
            f"runner 'rpc' runs programs on CPUs only so far; target {context.target.name!r} is "
            f"of kind {context.target.kind!r}"
        )
    backend = TVMBackend() if context.backend == TVMBackend.name else NativeBackend()
    backend.check_target(context.target)
    if context.protocol.cold:
        raise InvalidValueError(
            "runner 'rpc' does not empty the caches of servers: measure warm, without cold=true"
        )
    if context.observers:
        raise InvalidValueError(
            f"observers ({', '.join(context.observers)}) read counters of this machine, and "
            "programs of runner 'rpc' do not run on it"
        )


def boot_of_this_host() -> str:
    """Identity of this host as it runs now, as servers on it say, too; "" if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""

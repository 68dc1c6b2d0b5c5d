"""TVM itself: imported on first use, with its number of threads set.

The import takes two thirds of the time, with the same result: TVM asks its registries for what is
not there, and ignores their errors. The first of these reads the symbols of all libraries of the
process, to name its callers: here none is made.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from autotune.errors import UnsupportedTarget
from autotune.process.importing import no_collection, packages_hidden

__all__ = ["WORKER_ENVIRONMENT", "environment", "load", "replaced", "use_threads"]

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


_AUTOLOAD = "TVM_DEVICE_BACKEND_AUTOLOAD"
# Looks up types before the library that has them is loaded.
_WITHOUT_LIBRARY = "tvm.runtime.disco"


def import_tvm(hidden: Sequence[str] = ()) -> ModuleType:
    """Import TVM, and the backends that it loads by itself.

    Args:
        hidden: Modules that it is to continue without, as where they do not exist.

    Raises:
        ImportError, OSError: it cannot be imported.
    """
    if "tvm" in sys.modules:
        return importlib.import_module("tvm")
    is_wanted = os.environ.get(_AUTOLOAD, "1") != "0"
    with no_collection(), packages_hidden(*hidden):
        with (
            packages_hidden(_WITHOUT_LIBRARY),
            _names_listed_once(),
            environment(**{_AUTOLOAD: "0"}),
        ):
            tvm = importlib.import_module("tvm")
        if is_wanted:
            _load_backends(tvm)
    return tvm


def _load_backends(tvm: Any) -> None:
    """Load what the import has left out.

    They name operators for scripts: a hundred that no library has, and one that has its name.
    """
    loading: Any = importlib.import_module("tvm.backend._autoload_backends")
    builder: Any = importlib.import_module("tvm.tirx.script.builder.ir")
    get, register = tvm.ir.Op.get, builder._register_op_attr
    known = set[str]()

    def get_known(name: str) -> Any:
        if name not in known:
            names = tvm.ir.Op.list_op_names()
            if len(names) != len(known):
                known.update(map(str, names))
            if name not in known:
                raise AttributeError(f"Operator {name} is not registered")
        return get(name)

    def register_new(name: str, key: str, value: object, level: int) -> None:
        operator = get(name)
        if not operator.has_attr(key) or operator.get_attr(key) != value:
            register(name, key, value, level=level)

    with (
        replaced(tvm.ir.Op, "get", staticmethod(get_known)),
        replaced(builder, "_register_op_attr", register_new),
    ):
        loading._AUTO_LOAD_DONE = False
        loading._autoload_backends()


@contextmanager
def _names_listed_once() -> Iterator[None]:
    """Inside, functions are listed again only when there are new ones: fifty modules ask."""
    from tvm_ffi import registry

    list_names: Callable[[], list[str]] = registry.list_global_func_names
    known: list[str] = []

    def listed() -> list[str]:
        if len(known) != registry.get_global_func("ffi.FunctionListGlobalNamesFunctor")()(-1):
            known[:] = list_names()
        return known

    with replaced(registry, "list_global_func_names", listed):
        yield


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Inside, an attribute has another value."""
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Environment variables that hold only inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

"""Importing TVM in two thirds of the time, with the same result.

TVM asks its registries for what is not there, and ignores their errors. The first of these reads
the symbols of all libraries of the process, to name its callers: here none is made.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from autotune.process.garbage import no_collection
from autotune.process.hidden_packages import packages_hidden

__all__ = ["environment", "import_tvm"]

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
        _replaced(tvm.ir.Op, "get", staticmethod(get_known)),
        _replaced(builder, "_register_op_attr", register_new),
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

    with _replaced(registry, "list_global_func_names", listed):
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:
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

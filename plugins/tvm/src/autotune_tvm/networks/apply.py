"""From records to scheduled functions, and those into a module."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tvm import tirx
from tvm.ir import IRModule

from autotune.backends import BuildRequest, InvalidSchedule
from autotune.errors import AutotuneError
from autotune.store.records import Record
from autotune.targets import Target
from autotune_tvm.default_schedule import default_schedule, fallback_schedule
from autotune_tvm.importer import callable_module, import_module, text_of
from autotune_tvm.networks.graph import ENTRY
from autotune_tvm.printed import is_printable, printed_functions
from autotune_tvm.scheduled import scheduled_module

__all__ = [
    "PREPACKED",
    "apply_functions",
    "default_function",
    "recorded_on",
    "scheduled_function",
]

PREPACKED = "autotune.prepacked"
"""Attribute of a function that takes parameters packed: what packs each of them, by position."""


def recorded_on(function: Any, record: Record) -> tuple[Record, IRModule]:
    """A record on a function that computes what its own does, and the function as it is imported.

    Args:
        function: A ``PrimFunc`` that is not scheduled.
        record: Of a search on this function, or on one that computes the same.

    Raises:
        InvalidSchedule: the record is of another function.
    """
    wanted = record.candidate.sketch.workload
    workload, module = import_module(function)
    if wanted.digest != workload.digest:
        raise InvalidSchedule(
            f"record {record.name} is of workload {wanted.name!r}, which is not this function"
        )
    return record.on(workload, None), module


def scheduled_function(function: Any, record: Record, target: Target, threads: int) -> Any:
    """The function with a record's schedule, whatever names the record has for its stages.

    One that takes packed parameters has the attribute :data:`PREPACKED`, by which
    :func:`~autotune_tvm.networks.prepack.prepack_weights` makes its calls fit.

    Args:
        function: As of :func:`recorded_on`.
        record: As of :func:`recorded_on`, of a candidate that has a schedule.
        target: What it runs on.
        threads: How many threads it uses.

    Raises:
        InvalidSchedule: the record is of another function, or cannot be printed or replayed.
    """
    own, module = recorded_on(function, record)
    workload = own.candidate.sketch.workload
    request = BuildRequest(workload, text_of(module), own.scheduled, target, threads)
    attributes = dict(function.attrs or {})
    if not is_printable(request):
        return scheduled_module(request)[ENTRY].with_attrs(attributes)
    functions = printed_functions(request)
    kernel = functions.kernel.with_attrs(attributes)
    if not functions.packers:
        return kernel
    packers = {str(position): packer for position, packer in functions.packers.items()}
    return kernel.with_attr(PREPACKED, packers)


def default_function(function: Any, target: Target, threads: int) -> Any:
    """The function with TVM's default schedule, or as it is where TVM has none for it.

    On a GPU a function that a special rule fails on gets that of the rule for any program.
    """
    module = callable_module(IRModule({ENTRY: function}))
    with suppress(InvalidSchedule):
        return default_schedule(module, target, threads).mod[ENTRY]
    if target.kind == "cuda":
        with suppress(InvalidSchedule):
            return fallback_schedule(module, target).mod[ENTRY]
    return module[ENTRY]


def apply_functions(module: IRModule, functions: Mapping[str, Any]) -> IRModule:
    """The module with other bodies for some of its functions.

    Args:
        module: A network.
        functions: ``PrimFunc`` by the name of the function whose place it takes.

    Raises:
        AutotuneError: the module has no such function.
    """
    changed = module.clone()
    variables = {str(variable.name_hint): variable for variable in module.get_global_vars()}
    for name, function in functions.items():
        if name not in variables or not isinstance(module[name], tirx.PrimFunc):
            raise AutotuneError(f"the module has no compiled function {name!r}")
        changed.update_func(variables[name], function.without_attr("global_symbol"))
    return changed

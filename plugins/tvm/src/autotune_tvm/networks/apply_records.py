"""Recorded schedules in modules of Relax: a pass for any pipeline, and a pipeline of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst, GlobalVar, IRModule
from tvm.relax.analysis import post_order_visit

from autotune.backends import InvalidSchedule
from autotune.errors import AutotuneError, UnsupportedWorkload
from autotune.ir.workloads import Workload
from autotune.networks.passes import run_passes
from autotune.store.best_record import best_of_backends
from autotune.store.current import current_database
from autotune.store.sqlite import open_database
from autotune.targets import Target
from autotune.tuning.options import checked_target
from autotune_tvm.importer import CONSTANTS, constants_of, import_module
from autotune_tvm.networks.apply import apply_functions, default_function
from autotune_tvm.networks.graph import (
    ENTRY,
    bindings_of,
    operator_of,
    output_tensors,
    tensor_calls,
)
from autotune_tvm.networks.kernels import BACKEND as NATIVE
from autotune_tvm.networks.kernels import (
    NetworkKernel,
    only_called,
    recorded_function,
    with_kernels,
)
from autotune_tvm.networks.prepack import prepack_weights
from autotune_tvm.networks.reader import read_graph
from autotune_tvm.networks.writer import write_graph

__all__ = [
    "ApplyRecords",
    "autotune_pipeline",
    "constant_operands_of",
    "mark_constants",
    "with_passes",
]

_SCHEDULED = "tirx.is_scheduled"
"""TVM's own mark: its passes leave functions with it alone."""


@tvm.transform.module_pass(opt_level=0, name="ApplyRecords")
class ApplyRecords:
    """A pass: functions of a module get the best schedules that a database has for them.

    It belongs after ``FuseTIR``. Functions without a record stay as they are, and so do those
    that are scheduled already or for which the untuned program is the best one. Calls of functions
    that ``native`` tuned become calls of its kernels, which TVM links with what it builds; others
    get a schedule, and are marked, so that later passes leave them alone. Constants that a
    schedule packs are packed at once, where ``main`` is one or several dataflow blocks. Measures
    nothing.

    Args:
        database: Path of the database, which is only read; by default that of
            :func:`autotune.database`.
        target: As of :class:`~autotune.tuning.options.TuneOptions`: what records are of.
        threads: Threads that they were measured with; by default one per core.
        tir: Whether all schedules become TIR, which later passes can read.

    Raises:
        DatabaseError: the database cannot be read. What a pass raises later is a ``RuntimeError``
            by the time TVM has passed it on.
    """

    def __init__(
        self,
        database: str | os.PathLike[str] | None = None,
        target: Target | str | os.PathLike[str] = "cpu",
        threads: int | None = None,
        *,
        tir: bool = False,
    ) -> None:
        self._database = _readable(database)
        self._target = checked_target(target, threads)
        self._tir = tir

    def transform_module(self, module: IRModule, _: Any) -> IRModule:
        """The module with the schedules; called by TVM."""
        marked = mark_constants(module)
        return _applied(
            module, recorded(marked, self._database, self._target, self._tir), self._target
        )


def autotune_pipeline(
    database: str | os.PathLike[str] | None = None,
    target: Target | str | os.PathLike[str] = "cpu",
    threads: int | None = None,
    *,
    tir: bool = False,
) -> Any:
    """``relax.get_pipeline("autotune")``: the graph passes of ``tune-model``, then records.

    Functions that have no record get TVM's default schedule, where there is one.

    Args:
        database: As of :class:`ApplyRecords`, like the others.
        target: See there.
        threads: See there.
        tir: See there.

    Returns:
        A pass over modules, for ``relax.build`` afterwards.

    Raises:
        DatabaseError: the database cannot be read.
    """
    machine = checked_target(target, threads)
    path = _readable(database)

    def transform(module: IRModule, _: Any) -> IRModule:
        module = mark_constants(with_passes(module, machine))
        found = recorded(module, path, machine, tir)
        for name, function in unscheduled(module).items():
            if name not in found:
                found[name] = default_function(function, machine, machine.cores)
        return _applied(module, found, machine)

    return tvm.transform.module_pass(transform, opt_level=0, name="autotune")


def _applied(module: IRModule, functions: Mapping[str, Any], target: Target) -> IRModule:
    """The module with these functions and kernels, and the constants packed that they take so."""
    kernels = [it for it in functions.values() if isinstance(it, NetworkKernel)]
    others = {name: it for name, it in functions.items() if not isinstance(it, NetworkKernel)}
    applied = prepack_weights(apply_functions(module, others), target, target.cores)
    return with_kernels(applied, kernels, target.cores)


def _readable(database: str | os.PathLike[str] | None) -> str:
    """The path of a database that can be read; of the current one for None."""
    path = current_database() if database is None else os.fspath(database)
    with open_database(path, read_only=True):
        return path


def recorded(module: IRModule, path: str, target: Target, tir: bool) -> dict[str, Any]:
    """Kernels and scheduled functions by name, of those for which a database has a record."""
    workloads = {
        name: workload
        for name, function in unscheduled(module).items()
        if (workload := _imported(function)) is not None
    }
    if not workloads:
        return {}
    backends = (NATIVE, "tvm")
    with open_database(path, read_only=True) as database:
        records = {
            name: best_of_backends(database, it.digest, target, backends)
            for name, it in workloads.items()
        }
    replaceable = frozenset() if tir else only_called(module)
    found: dict[str, Any] = {}
    for name, record in records.items():
        if record is None or record.scheduled is None:
            continue
        try:
            made = recorded_function(
                name, module[name], record, target, target.cores, tir=name not in replaceable
            )
        except InvalidSchedule as error:
            raise InvalidSchedule(f"function {name!r}: {error}") from error
        if not isinstance(made, NetworkKernel):
            made = made.with_attr(_SCHEDULED, True)
        found[name] = made
    return found


def unscheduled(module: IRModule) -> Mapping[str, Any]:
    """The functions of a module that compute something and that nobody has scheduled, by name."""
    return {
        str(variable.name_hint): function
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc)
        and not (function.attrs and function.attrs.get(_SCHEDULED, False))
    }


def _imported(function: Any) -> Workload | None:
    """Workload of a function, where this package can express it."""
    try:
        return import_module(function)[0]
    except AutotuneError:
        return None


def mark_constants(module: IRModule) -> IRModule:
    """The module with functions that say which of their parameters are constants.

    Args:
        module: A network of compiled functions.
    """
    known = constant_operands_of(module)
    changed = module
    for variable, function in module.functions_items():
        positions = known.get(str(variable.name_hint), frozenset())
        if not isinstance(function, tirx.PrimFunc) or positions == constants_of(function):
            continue
        changed = module.clone() if changed is module else changed
        marked = function.without_attr(CONSTANTS)
        if positions:
            marked = function.with_attr(CONSTANTS, sorted(positions))
        changed.update_func(changed.get_global_var(variable.name_hint), marked)
    return changed


def constant_operands_of(module: IRModule) -> dict[str, frozenset[int]]:
    """Positions by function; functions that are used by more than straight calls have none.

    Empty where ``main`` is no straight line without side effects, which could not be rewritten.
    """
    names = {str(variable.name_hint) for variable in module.get_global_vars()}
    if ENTRY not in names or not isinstance(module[ENTRY], relax.Function):
        return {}
    body = module[ENTRY].body
    if not isinstance(body, relax.SeqExpr):
        return {}
    if not all(isinstance(block, relax.DataflowBlock) for block in body.blocks):
        return {}
    try:
        calls = tensor_calls(module)
    except UnsupportedWorkload:
        return {}
    found: dict[str, frozenset[int]] = {}
    for name, call in calls:
        fields = call.args[1].fields
        constants = {i for i, field in enumerate(fields) if isinstance(field, GenericConst)}
        found[name] = found.get(name, frozenset(constants)) & constants
    others = _used_otherwise(module)
    return {name: it for name, it in found.items() if it and name not in others}


def _used_otherwise(module: IRModule) -> set[str]:
    """Names of functions that are used by more than ``call_tir`` in ``main``."""
    found: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, GlobalVar):
            found.add(str(node.name_hint))

    for binding in bindings_of(module[ENTRY]):
        if operator_of(binding.value) != "call_tir":
            post_order_visit(binding.value, visit)
    for variable, function in module.functions_items():
        if variable.name_hint != ENTRY and isinstance(function, relax.Function):
            post_order_visit(function, visit)
    return found


def with_passes(module: IRModule, machine: Target) -> IRModule:
    """The module after the passes that ``tune-model`` runs; its tasks are functions of it.

    It is called as before: what it returns has the same form.

    Args:
        module: Has a function ``main``; that of the result returns tuples as it does.
        machine: What the network is for.

    Raises:
        UnsupportedWorkload: an operator has no form as a loop nest, or a tensor no fixed shape.
    """
    names = [tensor.name for tensor in output_tensors(module)]
    graph, _ = run_passes(read_graph(module, names), machine, machine.cores)
    return write_graph(graph, module[ENTRY].ret_ty)

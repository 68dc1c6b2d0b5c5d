"""Tuned functions as native kernels, which Relax's virtual machine calls through TVM-FFI.

A kernel is linked with the network, and needs neither autotune nor LLVM there. Its parallel loops
run on the threads of TVM's runtime.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen
from tvm import relax
from tvm.ir import Call, GlobalVar, IRModule, Op, Tuple

from autotune.backends import BuildRequest
from autotune.backends.native import candidate_of, check_instructions
from autotune.backends.native.exports import (
    Entry,
    Kernel,
    Taken,
    combined_object,
    ffi_file,
    kernel_of,
    machine_of,
    shared_library,
)
from autotune.errors import AutotuneError
from autotune.ir.workloads import Tensor
from autotune.store.records import Record
from autotune.targets import Target
from autotune_tvm import runtime
from autotune_tvm.importer import parameters_of
from autotune_tvm.networks.apply import recorded_on, scheduled_function
from autotune_tvm.networks.graph import operator_of
from autotune_tvm.networks.prepack import Packer, with_callees

__all__ = [
    "BACKEND",
    "NetworkKernel",
    "only_called",
    "recorded_function",
    "with_kernels",
]

BACKEND = "native"
"""The backend whose records are run by kernels."""

_PURPOSE = "a network with native kernels"
_LIBRARIES = "external_mods"
"""TVM's attribute of a module: what is linked with it."""


@frozen(eq=False)
class NetworkKernel:
    """A kernel in the place of a function of a network.

    Attributes:
        kernel: The kernel.
        run: What is called in the function's place, by its name.
        packers: What packs the parameter at a position; ``run`` takes the packed ones there.
    """

    kernel: Kernel
    run: Entry
    packers: Mapping[int, Entry]


def recorded_function(
    name: str, function: Any, record: Record, target: Target, threads: int, *, tir: bool = False
) -> NetworkKernel | Any:
    """Function as a record says: a kernel if ``native`` tuned it, or scheduled TIR.

    TIR, with a warning, takes the place of a kernel that cannot be had.

    Args:
        name: Of the function in its network.
        function: A ``PrimFunc`` that is not scheduled.
        record: Of a search on this function, or on one that computes the same.
        target: What it runs on.
        threads: How many threads it uses.
        tir: Whether it is to be TIR in any case.

    Raises:
        InvalidSchedule: the record is of another function, or cannot be printed or replayed.
    """
    if record.key.backend == BACKEND and not tir:
        own, module = recorded_on(function, record)
        request = BuildRequest(own.candidate.sketch.workload, None, own.scheduled, target, threads)
        try:
            return _kernel(name, request, module)
        except AutotuneError as error:
            warnings.warn(f"function {name!r} is TIR, no native kernel: {error}", stacklevel=2)
    return scheduled_function(function, record, target, threads)


def _kernel(name: str, request: BuildRequest, module: IRModule) -> NetworkKernel:
    candidate, target = candidate_of(request), request.target
    check_instructions(candidate, target)
    choice = candidate, target, machine_of(target)
    kernel = kernel_of(f"autotune_{name}", [choice], request.threads)
    return _fitted(name, kernel, parameters_of(module))


def _fitted(name: str, kernel: Kernel, parameters: Sequence[Tensor]) -> NetworkKernel:
    """A kernel that takes the parameters of a function, in their order and with their shapes."""
    *packs, run = kernel.calls
    workload = kernel.workload
    tensors = [*(tensor.name for tensor in workload.inputs), *workload.outputs]
    packed = {call.positions[0]: call for call in packs}
    numbers = {argument.name: number for number, argument in enumerate(run.arguments)}
    taken: list[Taken] = []
    packers: dict[int, Entry] = {}
    for position, parameter in enumerate(parameters):
        number = tensors.index(parameter.name)
        own = evolve(run.arguments[number], shape=parameter.shape)
        if number not in packed:
            taken.append(Taken(own, (number,)))
            continue
        call = packed[number]
        memories = call.arguments[1:]
        # What is packed is not read: its place may hold anything that is no null pointer.
        first, *rest = (Taken(it, (numbers[it.name],)) for it in memories)
        taken += [evolve(first, numbers=(number, *first.numbers)), *rest]
        entry = Entry.of(kernel, call, f"{kernel.name}_pack_{position}")
        packers[position] = evolve(entry, taken=(Taken(own, (0,)), *entry.taken[1:]))
    return NetworkKernel(kernel, Entry(name, kernel.name, run, tuple(taken)), packers)


def with_kernels(module: IRModule, kernels: Sequence[NetworkKernel], threads: int) -> IRModule:
    """The network with kernels in the place of functions; constants that they take so are packed.

    Args:
        module: A network; functions of the names of ``kernels`` are called by ``call_tir`` alone.
        kernels: The kernels.
        threads: How many threads it uses.

    Raises:
        BuildFailed: LLVM or the C compiler rejects a kernel, or there is no C compiler.
    """
    if not kernels:
        return module
    static, library = _built(kernels)
    packers = {
        (it.run.name, position): Packer(library[packer.name], _packed(packer), threads)
        for it in kernels
        for position, packer in it.packers.items()
    }
    names = {it.run.name for it in kernels}
    changed = with_callees(module, {name: _Callee(name) for name in names}, packers)
    others = {
        variable: function
        for variable, function in changed.functions_items()
        if str(variable.name_hint) not in names
    }
    linked = IRModule(others, attrs=changed.attrs)
    known = list(linked.get_attr(_LIBRARIES) or [])
    return linked.with_attr(_LIBRARIES, [*known, static])


def _built(kernels: Sequence[NetworkKernel]) -> tuple[Any, Any]:
    """The kernels as an object that TVM links with a network, and loaded."""
    entries = [entry for it in kernels for entry in (*it.packers.values(), it.run)]
    own = [it.kernel for it in kernels]
    whole = combined_object(own, ffi_file(own, entries), _PURPOSE)
    shared = shared_library(whole, own[0].variants[0].machine, _PURPOSE)
    modules = runtime.load().runtime
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
        object_file, library = Path(folder, "kernels.o"), Path(folder, "kernels.so")
        object_file.write_bytes(whole)
        library.write_bytes(shared)
        # Read, and mapped: the files themselves are needed no longer.
        names = [entry.name for entry in entries]
        static = modules.load_static_library(str(object_file), names)
        return static, modules.load_module(str(library))


def _packed(packer: Entry) -> tuple[tuple[tuple[int, ...], str], ...]:
    return tuple((taken.argument.shape, "uint8") for taken in packer.taken[1:])


def only_called(module: IRModule) -> frozenset[str]:
    """Names of the functions of a network that are used by ``call_tir`` alone."""
    others: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, Call):
            own = node.args[1:] if operator_of(node) == "call_tir" else [node.op, *node.args]
            others.update(str(it.name_hint) for it in own if isinstance(it, GlobalVar))

    for _, function in module.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    names = {str(variable.name_hint) for variable in module.get_global_vars()}
    return frozenset(names - others)


@frozen
class _Callee:
    """Makes calls of a kernel.

    Attributes:
        name: Of the kernel's function.
    """

    name: str

    def __call__(self, arguments: Sequence[Any], old: Any) -> Any:
        """The call in the place of another one."""
        given = [relax.ExternFunc(self.name), Tuple(arguments)]
        return Call(Op.get("relax.call_dps_packed"), given, None, old.ty_args)

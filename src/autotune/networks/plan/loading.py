"""A plan in this process: its programs and its driver as machine code, and its constants."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen
from numpy.typing import NDArray

from autotune.backends import ALIGNMENT, BuildFailed, NativeCall, aligned_copy, aligned_empty
from autotune.backends.native.executable import ask_for_tiles
from autotune.backends.native.machine_code import LoadedCode, load_object, object_of
from autotune.backends.native_call import time_native_call
from autotune.networks.plan.driver import print_driver
from autotune.networks.plan.native_program import NativeProgram
from autotune.runtime.plan import Plan
from autotune.targets import Target

__all__ = ["BuiltPlan", "LoadedPlan", "load_plan", "packed_constants", "table_of"]

Array = NDArray[Any]


@frozen(eq=False)
class BuiltPlan:
    """A plan as a library has it.

    Attributes:
        plan: The plan, without the arrays of its constants.
        objects: Object file of each program, by its key.
        constants: What steps read, by number; None of what is only packed.
    """

    plan: Plan[NativeProgram]
    objects: Mapping[str, bytes] = field(repr=False)
    constants: Sequence[Array | None] = field(repr=False)


@frozen(eq=False)
class LoadedPlan:
    """A plan that can be called.

    Attributes:
        plan: The plan, without the arrays of its constants.
        driver: The driver.
        codes: Machine code of each program, by its key.
        constants: What steps read, by number; None of what is only packed.
    """

    plan: Plan[NativeProgram]
    driver: LoadedCode
    codes: Mapping[str, LoadedCode]
    constants: Sequence[Array | None] = field(repr=False)

    @property
    def built(self) -> BuiltPlan:
        """Parts of the network for a library."""
        objects = {key: code.object for key, code in self.codes.items()}
        return BuiltPlan(self.plan, objects, self.constants)

    def tables(self) -> tuple[Any, Any]:
        """Addresses of the constants and of the programs, for the driver."""
        constants = [0 if it is None else it.ctypes.data for it in self.constants]
        programs = [code.address("run") for code in self.codes.values()]
        return table_of(constants), table_of(programs)


def table_of(addresses: Sequence[int]) -> Any:
    """An array of addresses that a program reads; there is one in it at least."""
    return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)


def load_plan(plan: Plan[NativeProgram], target: Target) -> LoadedPlan:
    """Compile a plan's programs, and pack its constants.

    Args:
        plan: The plan.
        target: The processor, which is the one that this process runs on.

    Raises:
        BuildFailed: LLVM rejects a program; names its task.
        NativeCallFailed: a program uses tile registers, and the system does not give them.
    """
    if any(program.layout.uses_tiles for program in plan.programs.values()):
        ask_for_tiles()
    codes = {}
    for key, program in plan.programs.items():
        try:
            made = object_of(program.text, target)
            codes[key] = load_object(made, program.layout.entries)
        except BuildFailed as error:
            raise BuildFailed(f"task {plan.tasks[key]!r}: {error}") from error
    driver = load_object(object_of(print_driver(plan), target), ["run"])
    constants = packed_constants(plan, codes)
    without = tuple(evolve(it, array=None) for it in plan.constants)
    return LoadedPlan(evolve(plan, constants=without), driver, codes, constants)


def packed_constants(
    plan: Plan[NativeProgram], codes: Mapping[str, LoadedCode]
) -> list[Array | None]:
    """The constants that steps of a plan read, aligned, by number; None of others.

    Args:
        plan: The plan.
        codes: Machine code of its programs, which this processor can run.
    """
    found: list[Array | None] = [None] * len(plan.constants)
    for number in plan.read_constants:
        array = plan.constants[number].array
        found[number] = None if array is None else _aligned(array)
    for packing in plan.packings:
        array = plan.constants[packing.constant].array
        assert array is not None  # what is packed is not packed again
        known = found[packing.constant]
        source = _aligned(array) if known is None else known
        made = [aligned_empty((plan.constants[it].bytes,), "uint8") for it in packing.made]
        for number, memory in zip(packing.made, made, strict=True):
            # Elements that nothing writes are read by none that matters, and are no NaN.
            memory.fill(0)
            found[number] = memory
        program, code = plan.programs[packing.program], codes[packing.program]
        _pack(program, code, packing.entry, [source, *made])
    return found


def _pack(program: NativeProgram, code: LoadedCode, entry: str, arrays: Sequence[Array]) -> None:
    """Call what packs a constant."""
    own = program.own_arrays
    packed = [it for it in program.layout.packed if it.entry == entry]
    positions = [packed[0].position, *(own + it.scratch for it in packed)]
    addresses = [0] * program.arrays
    for position, array in zip(positions, arrays, strict=True):
        addresses[position] = array.ctypes.data
    table = table_of(addresses)
    call = NativeCall(code.address(entry), (ctypes.addressof(table), 0, 0), (table, arrays))
    time_native_call(call, 1)


def _aligned(array: Array) -> Array:
    """An array where programs can read it, in place where it lies so."""
    is_placed = array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0
    return array if is_placed else aligned_copy(array)

"""A module as a network: its functions as tasks, and how they are compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.backends import ProgramFile
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.networks import (
    AskedInputs,
    CompiledNetwork,
    DeclaredInput,
    NetworkProgram,
    NetworkTask,
    NetworkTensor,
)
from autotune.networks.arrays import random_examples
from autotune.networks.fixed_inputs import fix_inputs
from autotune.store.records import Record
from autotune.targets import Target
from autotune_mlir.code_generation import Generated
from autotune_mlir.importing.importer import ask_reader, read_source
from autotune_mlir.networks.calls import callees_first, count_calls, find_entries
from autotune_mlir.networks.executable import ModuleNetwork
from autotune_mlir.networks.function import ModuleFunction, TensorType
from autotune_mlir.networks.units import compile_kernel, compile_unit

__all__ = ["ModuleProgram", "load_network"]

Array = NDArray[Any]


class ModuleProgram(NetworkProgram):
    """A module of functions on tensors.

    Args:
        name: What a person calls it.
        text: Of the module.
        functions: Those with a body, in order.
        examples: Inputs that it was given with; None where there are none.
        asked: What a person says of its inputs.

    Attributes:
        text: Of the module.
        entries: The functions by which it is called.
    """

    backend = "mlir"
    passes = ()

    def __init__(
        self,
        name: str,
        text: str,
        functions: Sequence[ModuleFunction],
        examples: Sequence[object] | None,
        asked: AskedInputs,
    ) -> None:
        self.name = name
        self.text = text
        by_name = {it.name: it for it in functions}
        counts = count_calls(by_name)
        self.entries = find_entries(by_name)
        self._functions = tuple(it for it in callees_first(by_name) if it.computes or it.problem)
        self.tasks = tuple(
            NetworkTask(it.name, it, counts[it.name], it.flop, it.operations)
            for it in self._functions
        )
        self.inputs = _tensors("arg", self.entries, [it.inputs for it in self.entries])
        self.outputs = _tensors("result", self.entries, [it.outputs for it in self.entries])
        declared = [DeclaredInput(it.name, it.shape, it.dtype) for it in self.inputs]
        self.fixed = fix_inputs(declared, asked, examples, name)
        if self.fixed.constants:
            given = ", ".join(self.fixed.constants)
            raise InvalidValueError(
                f"{name}: {given} is an input of a function, into which no value is baked: write "
                "an arith.constant in the module"
            )
        self._examples = self.fixed.examples

    def example_inputs(self) -> tuple[Any, ...]:
        """Those it was loaded with, else random ones of one seed."""
        return random_examples(self.inputs) if self._examples is None else self._examples

    def reference(self, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """What MLIR's own passes make of the module as it is, on one thread."""
        return self.run(compile_kernel(self.text, self.entries, {}, 1), inputs)

    def run(self, kernel: Generated, inputs: Sequence[Any]) -> tuple[Array, ...]:
        """What a kernel of the entries computes."""
        return ModuleNetwork(kernel, {}, self).run(inputs)

    def build(
        self, chosen: Mapping[str, Record | None], target: Target, threads: int
    ) -> CompiledNetwork:
        """Compile every function by itself, and what calls them.

        Raises:
            BuildFailed: MLIR or LLVM rejected it; names the task.
            InvalidSchedule: a record cannot be replayed; names the task.
        """
        units = {
            it.name: compile_unit(it, self.text, chosen.get(it.name), target, threads)
            for it in self._functions
            if not (it.problem or it.calls)
        }
        kernel = compile_kernel(self.text, self.entries, units, threads)
        return ModuleNetwork(kernel, units, self)


def load_network(
    source: object, example_inputs: Sequence[object] | None, asked: AskedInputs | None = None
) -> ModuleProgram:
    """Read a module, and cut it into its functions.

    Args:
        source: Path of a file, or a module of either bindings.
        example_inputs: Inputs of its entries; None for random ones.
        asked: What a person says of them.

    Raises:
        InvalidValueError: the file cannot be read or holds no whole module, or the example inputs
            are not those of the module.
        UnsupportedWorkload: there is no function that can be run; says why.
        BindingsMissing: MLIR is not installed.
    """
    given = ProgramFile(source, "mlir") if isinstance(source, Path) else source
    name = source.stem if isinstance(source, Path) else "module"
    text, file, _ = read_source(given)
    module, functions = _read(text, file)
    if not functions:
        raise InvalidValueError(
            f"{file} has no function with a body (func.func): there is nothing to tune"
        )
    network = ModuleProgram(name, module, functions, example_inputs, asked or AskedInputs())
    if not network.entries:
        first, *others = [it for it in functions if it.problem]
        more = f" (and {len(others)} more functions)" if others else ""
        raise UnsupportedWorkload(f"{file} has no function that can be run: {first.problem}{more}")
    return network


def _read(text: str, file: str) -> tuple[str, list[ModuleFunction]]:
    """The module and its functions, whatever MLIR does not survive to read of them."""
    question = {"op": "read_module", "text": text, "file": file, "function": None}
    try:
        answer = ask_reader({**question, "facts": True})
        return answer["module"], [ModuleFunction.from_json(it) for it in answer["facts"]]
    except UnsupportedWorkload:
        pass
    try:
        answer = ask_reader({**question, "facts": False})
    except UnsupportedWorkload as error:
        raise InvalidValueError(f"{error}; give a whole module, as mlir-opt reads it") from None
    functions = []
    for name in answer["functions"]:
        try:
            (facts,) = ask_reader({**question, "function": name, "facts": True})["facts"]
            functions.append(ModuleFunction.from_json(facts))
        except UnsupportedWorkload as error:
            functions.append(ModuleFunction.unread(name, error))
    return answer["module"], functions


def _tensors(
    stem: str, entries: Sequence[ModuleFunction], kinds: Sequence[Sequence[TensorType]]
) -> tuple[NetworkTensor, ...]:
    """Tensors by their positions; with several entries, by the entry's name, too."""
    return tuple(
        NetworkTensor(
            f"{entry.name}.{stem}{position}" if len(entries) > 1 else f"{stem}{position}",
            kind.shape,
            kind.dtype,
        )
        for entry, types in zip(entries, kinds, strict=True)
        for position, kind in enumerate(types)
    )

"""From a module to the core's graph: its functions are workloads, or call such."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from autotune.backends import BuildFailed, ProgramFile, aligned_empty
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.converter import from_json
from autotune.networks import (
    AskedInputs,
    DeclaredInput,
    FixedInputs,
    GraphSource,
    NetworkTensor,
    Yardstick,
)
from autotune.networks import graph as ops
from autotune.networks.fixed_inputs import fix_inputs
from autotune.networks.graph import Graph, Value
from autotune.process.channel import ATTACHMENTS
from autotune.runtime.arrays import aligned_inputs
from autotune_mlir import bindings
from autotune_mlir.compiler import generate, lower
from autotune_mlir.importing.importer import ask_reader, read_source
from autotune_mlir.importing.reading import Call, caller_text, decompose
from autotune_mlir.networks.module_library import write_library
from autotune_mlir.networks.module_reading import Block, ModuleFunction, Step, TensorType
from autotune_mlir.parsing import new_context, operations_in

__all__ = ["graph_source", "read_functions", "run_module"]

Array = NDArray[Any]
Functions = Mapping[str, ModuleFunction]


def graph_source(
    source: object, example_inputs: Sequence[object] | None, asked: AskedInputs
) -> GraphSource:
    """Read a module.

    Its inputs are the arguments of the functions that no other one calls. A function that cannot
    be read is left out, which is a remark, and those that it calls are run instead.

    Args:
        source: Path of a file, or a module of either bindings.
        example_inputs: Inputs of its entries; None for random ones.
        asked: What a person says of them.

    Raises:
        InvalidValueError: the file cannot be read or holds no whole module, functions call each
            other in a circle, or the example inputs are not those of the module.
        UnsupportedWorkload: there is no function that can be read; says why.
        BindingsMissing: MLIR is not installed.
    """
    given = ProgramFile(source, "mlir") if isinstance(source, Path) else source
    name = source.stem if isinstance(source, Path) else "module"
    text, file, _ = read_source(given)
    module, functions = read_functions(text, file)
    entries, left_out = _entries(functions, file)
    inputs = _tensors("arg", entries, [it.inputs for it in entries])
    outputs = _tensors("result", entries, [it.outputs for it in entries])
    declared = [DeclaredInput(it.name, it.shape, it.dtype) for it in inputs]
    fixed = fix_inputs(declared, asked, example_inputs, name)
    remarks = [f"{file}: {problem}: it is left out" for problem in left_out]
    fixed = evolve(fixed, remarks=(*fixed.remarks, *remarks))
    graph = _graph(functions, entries, (inputs, outputs), fixed)

    def run(arrays: Sequence[Array]) -> tuple[Array, ...] | None:
        left = iter(arrays)
        every = [
            fixed.constants[it.name] if it.name in fixed.constants else next(left) for it in inputs
        ]
        return run_module(module, entries, (inputs, outputs), every)

    library = partial(write_library, module, tuple(functions.values()))
    return GraphSource(
        name,
        graph,
        fixed,
        Yardstick("MLIR's own passes", run),
        is_prepared=True,
        forms=MappingProxyType({".mlir": library}),
    )


def read_functions(text: str, file: str) -> tuple[str, dict[str, ModuleFunction]]:
    """The text of a module as MLIR prints it, and its functions that have a body, by name.

    Args:
        text: Of the module.
        file: What to call it in messages.

    Raises:
        InvalidValueError: it is no whole module, or has no function with a body.
    """
    question = {"op": "read_module", "text": text, "file": file, "function": None}
    try:
        answer = ask_reader({**question, "facts": True})
        functions = _functions(answer)
    except UnsupportedWorkload:
        answer, functions = _one_by_one(question)
    if not functions:
        raise InvalidValueError(
            f"{file} has no function with a body (func.func): there is nothing to tune"
        )
    return answer["module"], {it.name: it for it in functions}


def _one_by_one(question: Mapping[str, Any]) -> tuple[Any, list[ModuleFunction]]:
    """Read a module whatever MLIR does not survive to read of it."""
    try:
        answer = ask_reader({**question, "facts": False})
    except UnsupportedWorkload as error:
        raise InvalidValueError(f"{error}; give a whole module, as mlir-opt reads it") from None
    functions: list[ModuleFunction] = []
    for name in answer["functions"]:
        try:
            functions += _functions(ask_reader({**question, "function": name, "facts": True}))
        except UnsupportedWorkload as error:
            functions.append(ModuleFunction(name, problem=str(error)))
    return answer, functions


def _functions(answer: Mapping[str, Any]) -> list[ModuleFunction]:
    arrays = tuple(answer.get(ATTACHMENTS, ()))
    return [evolve(from_json(ModuleFunction, facts), arrays=arrays) for facts in answer["facts"]]


def _entries(functions: Functions, file: str) -> tuple[list[ModuleFunction], list[str]]:
    """The functions that a network is called by, in order, and why others are left out.

    Raises:
        UnsupportedWorkload: there is none.
    """
    _check_circles(functions)
    problems: dict[str, str] = {}
    found: dict[str, ModuleFunction] = {}

    def visit(names: Iterable[str]) -> None:
        for name in names:
            problem = _problem(functions, name)
            if not problem:
                found[name] = functions[name]
            elif name in functions:
                problems[name] = problem
                visit(functions[name].calls)

    called = {name for function in functions.values() for name in function.calls}
    visit(name for name in functions if name not in called)
    if not found:
        first, *others = problems.values()
        more = f" (and {len(others)} more functions)" if others else ""
        raise UnsupportedWorkload(f"{file} has no function that can be run: {first}{more}")
    return list(found.values()), list(problems.values())


def _problem(functions: Functions, name: str) -> str:
    """Say why a function cannot be run; "" where it can."""
    function = functions.get(name)
    if function is None:
        return f"function @{name} has no body"
    if function.problem:
        return function.problem
    problems = ((called, _problem(functions, called)) for called in dict.fromkeys(function.calls))
    return next((f"function @{name} calls @{it}: {why}" for it, why in problems if why), "")


def _check_circles(functions: Functions) -> None:
    """Check that no function calls itself.

    Raises:
        InvalidValueError: one does; names it.
    """
    done: dict[str, bool] = {}

    def visit(name: str) -> None:
        if name not in functions or done.get(name):
            return
        if name in done:
            raise InvalidValueError(
                f"function @{name} calls itself, at once or through others, so that nothing says "
                "how often it is called; give a module without recursion"
            )
        done[name] = False
        for called in functions[name].calls:
            visit(called)
        done[name] = True

    for name in functions:
        visit(name)


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


def _graph(
    functions: Functions,
    entries: Sequence[ModuleFunction],
    tensors: tuple[Sequence[NetworkTensor], Sequence[NetworkTensor]],
    fixed: FixedInputs,
) -> Graph:
    """The functions that a network is called by, one after the other."""
    given = [
        ops.constant(fixed.constants[it.name], it.dtype, it.name)
        if it.name in fixed.constants
        else ops.input_value(it.name, it.shape, it.dtype)
        for it in tensors[0]
    ]
    reader, left = _Reader(functions), iter(given)
    results: list[Value] = []
    for entry in entries:
        results += reader.called(entry.name, [next(left) for _ in entry.inputs])
    outputs = {it.name: value for it, value in zip(tensors[1], results, strict=True)}
    return Graph(tuple(it for it in given if it.is_input), outputs)


@frozen(eq=False)
class _Reader:
    """Functions that are being put together.

    Attributes:
        functions: Those of the module, by name.
        constants: Of the functions that were read, by name.
    """

    functions: Functions
    constants: dict[str, dict[int, Value]] = field(factory=dict)

    def called(self, name: str, operands: Sequence[Value]) -> list[Value]:
        """The results of a function."""
        function = self.functions[name]
        if name not in self.constants:
            self.constants[name] = {
                number: ops.constant(array) for number, array in function.values.items()
            }
        results = self._run(function.body, operands, self.constants[name])
        pairs = zip(results, function.outputs, strict=True)
        return [_as_type(value, kind.dtype) for value, kind in pairs]

    def _run(
        self, block: Block, operands: Sequence[Value], outer: Mapping[int, Value]
    ) -> list[Value]:
        """Run a block on values; ``outer`` are those that it may read besides its own."""
        known = {**outer, **dict(zip(block.arguments, operands, strict=True))}
        for step in block.steps:
            results = self._step(step, [known[it] for it in step.operands], known)
            known.update(zip((number for number, _ in step.results), results, strict=True))
        return [known[it] for it in block.returned]

    def _step(
        self, step: Step, operands: Sequence[Value], known: Mapping[int, Value]
    ) -> Sequence[Value]:
        if step.call:
            return self.called(step.call, operands)
        if step.body is not None:
            return self._loop(step.trips, step.body, operands, known)
        kinds = [kind for _, kind in step.results]
        if step.workload is None:
            return [ops.reshape(operands[0], kinds[0].shape)]
        typed = [
            _as_type(value, tensor.dtype)
            for value, tensor in zip(operands, step.workload.inputs, strict=True)
        ]
        results = ops.workload(step.workload, typed)
        return [_as_type(it, kind.dtype) for it, kind in zip(results, kinds, strict=True)]

    def _loop(
        self, trips: int, body: Block, operands: Sequence[Value], known: Mapping[int, Value]
    ) -> Sequence[Value]:
        """The last states of a loop; what it reads beside them is given to each step."""
        around = {number: known[number] for number in sorted(body.reads)}
        read = {number: it for number, it in around.items() if it.constant is None}

        def step(
            states: Sequence[Value], _: Sequence[Value], fixed: Sequence[Value]
        ) -> tuple[list[Value], list[Value]]:
            outer = {**around, **dict(zip(read, fixed, strict=True))}
            return self._run(body, states, outer), []

        last, _ = ops.loop(step, trips, operands, fixed=list(read.values()))
        return last


def _as_type(value: Value, dtype: str) -> Value:
    """A value in another type of as many bits: programs say what bytes without a sign mean."""
    if value.dtype == dtype:
        return value
    if value.constant is not None:
        return ops.constant(np.asarray(value.constant).view(dtype), dtype, value.name)
    return ops.cast(value, dtype)


# Names of a module's own functions may be those of functions that the code calls.
_PREFIX = "network."
_INLINE = "builtin.module(inline,symbol-dce,convert-elementwise-to-linalg)"


def run_module(
    module: str,
    entries: Sequence[ModuleFunction],
    tensors: tuple[Sequence[NetworkTensor], Sequence[NetworkTensor]],
    inputs: Sequence[Array],
) -> tuple[Array, ...] | None:
    """Run functions of a module, on one thread; None where MLIR cannot compile it.

    Args:
        module: Text of the module.
        entries: What is run, in order.
        tensors: All inputs of the entries, and all outputs.
        inputs: Arrays for the inputs.
    """
    try:
        lowered = lower(kernel_text(module, entries), threads=1, by_default=True)
        kernel = generate(lowered)
    except (BuildFailed, bindings.load().ir.MLIRError):
        return None
    outputs = tuple(aligned_empty(it.shape, it.dtype) for it in tensors[1])
    kernel.run([*aligned_inputs(tensors[0], inputs), *outputs])
    return outputs


def kernel_text(module: str, entries: Sequence[ModuleFunction]) -> str:
    """A module with one function ``@kernel`` that runs functions of a module.

    Its arguments are buffers: the inputs of all entries, and then their outputs.

    Args:
        module: Text of the module.
        entries: What is run, in order.

    Raises:
        MLIRError: the module cannot be linked.
    """
    mlir = bindings.load()
    with new_context(), mlir.ir.Location.unknown():
        linked = mlir.ir.Module.parse(module)
        for view in list(linked.body.operations):
            if view.operation.name == "func.func":
                _hide(mlir.ir, view.operation)
        added = mlir.ir.Module.parse(caller_text(list(map(_call, entries))))
        for view in list(added.body.operations):
            if len(view.operation.regions[0].blocks):
                linked.body.append(view)
        mlir.passmanager.PassManager.parse(_INLINE).run(linked.operation)
        decompose(mlir, linked)
        return str(linked)


def _hide(ir: Any, function: Any) -> None:
    """Make a function private under a name that is the module's own, and so what it calls."""
    prefixed = f"{_PREFIX}{function.attributes['sym_name'].value}"
    function.attributes["sym_name"] = ir.StringAttr.get(prefixed)
    function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    for operation in operations_in(function):
        if operation.name == "func.call":
            called = operation.attributes["callee"].value
            renamed = ir.FlatSymbolRefAttr.get(f"{_PREFIX}{called}")
            operation.attributes["callee"] = renamed


def _call(function: ModuleFunction) -> Call:
    inputs, outputs = (
        tuple(kind.tensor for kind in kinds) for kinds in (function.inputs, function.outputs)
    )
    return Call(f"{_PREFIX}{function.name}", inputs, outputs)

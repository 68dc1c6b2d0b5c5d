"""From the text of a module to facts on its functions, in the process that calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from autotune.errors import AutotuneError, UnsupportedWorkload
from autotune.process import Message
from autotune.process.error_codec import error_from_json, error_to_json
from autotune_mlir import bindings
from autotune_mlir.compiler import lower
from autotune_mlir.importing.reading import check_argument, import_function, name_of, parse_text
from autotune_mlir.importing.scalar_import import dtype_of
from autotune_mlir.networks.function import ModuleFunction
from autotune_mlir.networks.linking import kernel_text
from autotune_mlir.parsing import new_context
from autotune_mlir.traversal import operations_in

__all__ = ["answer"]

_CALL = "func.call"
# Operations that compute nothing by themselves.
_AROUND = frozenset(
    {_CALL, "func.return", "arith.constant", "tensor.empty", "tensor.cast", "linalg.fill"}
)
_GENERALIZE = "builtin.module(convert-elementwise-to-linalg,linalg-generalize-named-ops)"


def answer(question: Message) -> Message:
    """Answer what the host asks of a module.

    Args:
        question: ``text`` of the module and ``file``, what to call it in messages; ``function``,
            the one that is asked for, or None for all; ``facts``, whether to look into them.

    Returns:
        ``module`` is the module's text, ``functions`` lists the names of those with a body, and
        ``facts`` has what :meth:`autotune_mlir.networks.function.ModuleFunction.from_json` reads.

    Raises:
        UnsupportedWorkload: the text does not parse; says where.
        BindingsMissing: MLIR is not installed.
    """
    text, file, only = question["text"], question["file"], question["function"]
    mlir = bindings.load()
    with new_context(), mlir.ir.Location.unknown():
        module = parse_text(mlir, text, file)
        names = [name_of(it) for it in _functions(module)]
        found = {"module": str(module), "functions": names}
    wanted = [only] if only is not None else names
    facts = [_function_facts(text, file, name) for name in wanted] if question["facts"] else []
    return {**found, "facts": facts}


def _function_facts(text: str, file: str, name: str) -> Message:
    """Facts on a function with a body; the module is parsed again, for reading changes it."""
    mlir = bindings.load()
    with new_context(), mlir.ir.Location.unknown():
        module = parse_text(mlir, text, file)
        defined = {name_of(it): it for it in _functions(module)}
        function = defined[name]
        calls = _calls(function)
        facts = _signature(mlir, function)
        operations = [it.name for it in _body(function) if it.name not in _AROUND]
        facts |= {
            "calls": calls,
            "operations": operations,
            "computes": bool(operations) or not calls,
            "flop": _flop(mlir, function),
        }
        missing = sorted(_reached(name, defined) - set(defined))
        if missing and not facts["problem"]:
            facts["problem"] = f"function @{name} needs @{missing[0]}, which has no body"
        facts |= _import(mlir, function, calls, file)
        if facts["imported"] is None and not facts["problem"]:
            facts["problem"] = _lowering_problem(str(module), facts)
        return facts


def _functions(module: Any) -> list[Any]:
    operations = (view.operation for view in module.body.operations)
    return [it for it in operations if it.name == "func.func" and len(it.regions[0].blocks)]


def _body(function: Any) -> list[Any]:
    return [view.operation for block in function.regions[0].blocks for view in block.operations]


def _reached(name: str, defined: Mapping[str, Any]) -> set[str]:
    """Everything that a function calls, and that those call."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        function = defined.get(waiting.pop())
        new = set() if function is None else set(_calls(function)) - found
        found |= new
        waiting += new
    return found


def _calls(function: Any) -> list[str]:
    """Names of what a function calls, wherever in it; one for each call."""
    calls = (operation for operation in operations_in(function) if operation.name == _CALL)
    return [str(call.attributes["callee"].value) for call in calls]


def _signature(mlir: bindings.Bindings, function: Any) -> Message:
    """Name, type, and what a caller with arrays has to know."""
    name, kind = name_of(function), function.attributes["function_type"].value
    problem = ""
    tensors: dict[str, list[list[Any]]] = {"argument": [], "result": []}
    for noun, types in (("argument", kind.inputs), ("result", kind.results)):
        for position, item in enumerate(types):
            try:
                check_argument(mlir, item, f"{noun} {position} of function @{name}")
            except UnsupportedWorkload as error:
                problem = problem or str(error)
            else:
                element = item.element_type
                tensors[noun].append([str(element), list(item.shape), dtype_of(element)])
    return {
        "name": name,
        "kind": str(kind),
        "inputs": [] if problem else tensors["argument"],
        "outputs": [] if problem else tensors["result"],
        "problem": problem,
    }


def _import(mlir: bindings.Bindings, function: Any, calls: Sequence[str], file: str) -> Message:
    """The function by itself as a workload, or why it is none."""
    name = name_of(function)
    try:
        if calls:
            raise UnsupportedWorkload(
                f"function @{name} calls @{calls[0]} beside what it computes itself; inline the "
                "call, or move the rest to a function of its own"
            )
        alone = mlir.ir.Module.create()
        copy = function.clone()
        copy.attributes["sym_visibility"] = mlir.ir.StringAttr.get("public")
        alone.body.append(copy)
        workload, program = import_function(mlir, alone, name, file)
    except AutotuneError as error:
        return {"imported": None, "refusal": error_to_json(error)}
    return {"imported": {"workload": workload.to_json(), "program": program}, "refusal": None}


def _lowering_problem(module: str, facts: Message) -> str:
    """Why MLIR's own passes do not make code of a function; "" where they do."""
    function = ModuleFunction.from_json(facts)
    try:
        text = kernel_text(module, [function], {})
        _check_lowered(lower(text, threads=1, by_default=True).module)
    except (AutotuneError, bindings.load().ir.MLIRError) as error:
        # Of what is not expressed, the reason for that says more than a pass does.
        reason = error if function.calls else error_from_json(facts["refusal"])
        return f"function @{function.name} cannot be compiled: {' '.join(str(reason).split())}"
    return ""


def _check_lowered(module: Any) -> None:
    """Raises UnsupportedWorkload where a pass left an operation behind that LLVM does not know."""
    for operation in operations_in(module.operation):
        if not operation.name.startswith(("llvm.", "builtin.module")):
            raise UnsupportedWorkload(f"MLIR's passes leave operation {operation.name} as it is")


def _flop(mlir: bindings.Bindings, function: Any) -> float:
    """Scalar operations of the function's linalg operations, of those of static shape."""
    alone = mlir.ir.Module.create()
    alone.body.append(function.clone())
    try:
        mlir.passmanager.PassManager.parse(_GENERALIZE).run(alone.operation)
    except mlir.ir.MLIRError:
        return 0.0
    return float(sum(map(_flop_of, _body(_functions(alone)[0]))))


def _flop_of(operation: Any) -> int:
    if operation.name != "linalg.generic":
        return 0
    extents: dict[int, int] = {}
    maps = [item.value for item in operation.attributes["indexing_maps"]]
    for value, indexing in zip(operation.operands, maps, strict=True):
        shape = getattr(value.type, "shape", ())
        for extent, expression in zip(shape, indexing.results, strict=False):
            if hasattr(expression, "position"):
                extents[expression.position] = extent
    names = (view.operation.name for view in operation.regions[0].blocks[0].operations)
    scalar = sum(name.startswith(("arith.", "math.")) for name in names)
    # Extents that are not known are negative.
    return int(scalar) * prod(max(extent, 0) for extent in extents.values())

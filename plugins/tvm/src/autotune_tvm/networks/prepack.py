"""Weights are packed when a network is built, not each time it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from tvm import relax, tirx
from tvm.ir import Call, IRModule, Tuple
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.runtime import empty

from autotune.targets import Target
from autotune_tvm import compiler, runtime
from autotune_tvm.networks.apply import PREPACKED
from autotune_tvm.networks.graph import ENTRY, array_of, operator_of

__all__ = ["Callee", "Packer", "prepack_weights", "with_callees"]

Callee = Callable[[Sequence[Any], Any], Any]
"""Makes a call of what takes a function's place, of its arguments and of the call as it was."""


@frozen(eq=False)
class Packer:
    """Function that packs an operand of another.

    Attributes:
        function: Compiled: from the operand to the packed ones.
        kinds: Shapes and element types of the packed operands.
        threads: How many it runs on.
    """

    function: Any
    kinds: tuple[tuple[tuple[int, ...], str], ...]
    threads: int

    def packed(self, operand: Any) -> list[Any]:
        """The packed constants."""
        array = array_of(operand)
        assert array is not None  # it is a constant
        results = [empty(shape, dtype) for shape, dtype in self.kinds]
        for result in results:
            # Elements that no statement writes are read by none that matters, and are no NaN.
            _bits(result)[...] = 0
        runtime.use_threads(self.threads)
        self.function(operand.value, *results)
        return [relax.const(result) for result in results]


def _bits(tensor: Any) -> Any:
    """A tensor as an array in place; of bfloat16, which numpy does not have, its bits."""
    if str(tensor.dtype) == "bfloat16":
        tensor = tensor._create_view(tensor.shape, "uint16")
    return np.from_dlpack(tensor)


def prepack_weights(module: IRModule, target: Target, threads: int) -> IRModule:
    """Pack the constants that scheduled functions are to be given packed.

    Args:
        module: A network whose functions are scheduled; see
            :data:`~autotune_tvm.networks.apply.PREPACKED`.
        target: What it runs on.
        threads: How many threads it uses.

    Raises:
        BuildFailed: what packs does not compile.
    """
    packers: dict[tuple[str, int], Packer] = {}
    functions: dict[str, tuple[Any, Any]] = {}
    for variable, scheduled in module.functions_items():
        name = str(variable.name_hint)
        packings = _packings(scheduled)
        if not packings:
            continue
        function = scheduled.without_attr(PREPACKED)
        for position, packing in packings.items():
            entry = IRModule({ENTRY: packing.with_attr("global_symbol", ENTRY)})
            compiled = compiler.compile_module(entry, target, threads)[ENTRY]
            types = (parameter.ty for parameter in packing.params[1:])
            kinds = tuple((tuple(map(int, it.shape)), str(it.dtype)) for it in types)
            packers[name, position] = Packer(compiled, kinds, threads)
        # A variable of its own: that of a function has its type, with the unpacked operand's.
        functions[name] = relax.BlockBuilder().add_func(function, name), function
    if not functions:
        return module
    callees = {name: _calls(variable) for name, (variable, _) in functions.items()}
    changed = with_callees(module, callees, packers)
    whole = dict(
        functions.get(str(variable.name_hint), (variable, body))
        for variable, body in changed.functions_items()
    )
    return IRModule(whole, attrs=module.attrs)


def _packings(function: Any) -> dict[int, Any]:
    """Packers of a function's parameters, by their positions."""
    if not isinstance(function, tirx.PrimFunc) or function.attrs is None:
        return {}
    return {int(at): packer for at, packer in function.attrs.get(PREPACKED, {}).items()}


def _calls(variable: Any) -> Callee:
    def call(arguments: Sequence[Any], old: Any) -> Any:
        rest = [variable, Tuple(arguments), *old.args[2:]]
        return Call(old.op, rest, old.attrs, old.ty_args)

    return call


def with_callees(
    module: IRModule,
    callees: Mapping[str, Callee],
    packers: Mapping[tuple[str, int], Packer],
) -> IRModule:
    """The module with other calls in the place of some functions' calls.

    Args:
        module: A network.
        callees: What makes the new calls, by name of the function that is called now.
        packers: What packs constants that the new calls take packed, by function and position;
            each constant is packed once.
    """
    packed: dict[tuple[str, int, Any], list[Any]] = {}

    def arguments_of(name: str, given: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for position, argument in enumerate(given):
            if (name, position) not in packers:
                found.append(argument)
                continue
            key = name, position, argument
            if key not in packed:
                packed[key] = packers[name, position].packed(argument)
            found += packed[key]
        return found

    def changed(call: Any) -> Any:
        name = str(call.args[0].name_hint) if operator_of(call) == "call_tir" else ""
        if name not in callees:
            return call
        return callees[name](arguments_of(name, call.args[1].fields), call)

    calls = _Calls(module, changed)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            calls.builder_.update_func(variable, calls.visit_expr(function))
    return calls.builder_.get()


@mutator
class _Calls(PyExprMutator):  # type: ignore[misc]
    """Changes calls."""

    def __init__(self, module: IRModule, changed: Callable[[Any], Any]) -> None:
        super().__init__(module)
        self.changed = changed

    def visit_call_(self, call: Any) -> Any:
        """The new call."""
        return self.changed(self.visit_expr_post_order(call))

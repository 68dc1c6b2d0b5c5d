"""Weights are packed when a network is built, not each time it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import frozen
from tvm import relax, tirx
from tvm.ir import Call, IRModule, Tuple
from tvm.runtime import empty

from autotune.targets import Target
from autotune_tvm import compiler, runtime
from autotune_tvm.networks.apply import PREPACKED
from autotune_tvm.networks.graph import ENTRY, Graph, Replace, array_of, operator_of, rewrite

__all__ = ["prepack_weights"]


@frozen(eq=False)
class _Packer:
    """What packs one operand of a function.

    Attributes:
        function: Compiled: from the operand to the packed ones.
        kinds: Types of the packed operands.
        threads: How many it runs on.
    """

    function: Any
    kinds: tuple[Any, ...]
    threads: int

    def packed(self, operand: Any) -> list[Any]:
        """The packed constants."""
        array = array_of(operand)
        assert array is not None  # it is a constant
        results = [
            empty([int(extent) for extent in kind.shape], str(kind.dtype)) for kind in self.kinds
        ]
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


def prepack_weights(
    module: IRModule, target: Target, threads: int
) -> tuple[IRModule, dict[str, int]]:
    """Pack the constants that scheduled functions are to be given packed.

    Args:
        module: A network whose functions are scheduled; see
            :data:`~autotune_tvm.networks.apply.PREPACKED`.
        target: What it runs on.
        threads: How many threads it uses.

    Returns:
        The module, and how many operands of each function are packed now.

    Raises:
        BuildFailed: what packs does not compile.
    """
    packers: dict[tuple[str, int], _Packer] = {}
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
            kinds = tuple(parameter.ty for parameter in packing.params[1:])
            packers[name, position] = _Packer(compiled, kinds, threads)
        # A variable of its own: that of a function has its type, with the unpacked operand's.
        functions[name] = relax.BlockBuilder().add_func(function, name), function
    if not functions:
        return module, {}
    changed = rewrite(module, _packed_calls(packers, functions))
    whole = dict(
        functions.get(str(variable.name_hint), (variable, body))
        for variable, body in changed.functions_items()
    )
    return IRModule(whole, attrs=module.attrs), dict(Counter(name for name, _ in packers))


def _packings(function: Any) -> dict[int, Any]:
    """What packs the parameters of a function, by their positions."""
    if not isinstance(function, tirx.PrimFunc) or function.attrs is None:
        return {}
    return {int(at): packer for at, packer in function.attrs.get(PREPACKED, {}).items()}


def _packed_calls(
    packers: Mapping[tuple[str, int], _Packer], functions: Mapping[str, tuple[Any, Any]]
) -> Replace:
    """What gives calls the packed constants; each is packed once."""
    packed: dict[tuple[str, int, Any], list[Any]] = {}

    def replace(call: Any, graph: Graph) -> Any:
        name = str(call.args[0].name_hint) if operator_of(call) == "call_tir" else ""
        if name not in functions:
            return None
        arguments: list[Any] = []
        for position, argument in enumerate(call.args[1].fields):
            if (name, position) not in packers:
                arguments.append(argument)
                continue
            key = name, position, argument
            if key not in packed:
                packed[key] = packers[name, position].packed(argument)
            arguments += packed[key]
        rest = [functions[name][0], Tuple(arguments), *call.args[2:]]
        return Call(call.op, rest, call.attrs, call.ty_args)

    return replace

"""From a network whose functions are scheduled to kernels and their order on a CUDA device."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
from attrs import define, field
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import GenericConst, IRModule, Tuple, Var
from tvm.runtime import DataType

from autotune.backends import BuildFailed, CudaProgram, cubin_architecture, find_cuda_compiler
from autotune.errors import UnsupportedWorkload
from autotune.networks import NetworkTensor
from autotune.networks.cuda_plan import DeviceProgram, NamedCall, plan_of_calls
from autotune.networks.plan.plan import Plan
from autotune.targets import Target
from autotune_tvm import cuda_measuring
from autotune_tvm.cuda_code import LoweredKernels, cuda_source, lower_kernels, program_of
from autotune_tvm.importer import callable_module, module_of
from autotune_tvm.networks.graph import (
    ENTRY,
    array_of,
    bindings_of,
    dtype_of,
    operator_of,
    shape_of,
    tensor_calls,
)

__all__ = ["compile_functions", "device_plan", "lowered_functions", "named_functions"]


_RESHAPE = "vm.builtin.reshape"


def device_plan(
    module: IRModule,
    inputs: Sequence[NetworkTensor],
    outputs: Sequence[NetworkTensor],
    target: Target,
) -> Plan[DeviceProgram]:
    """Compile the functions of a network, and say what is called in which order.

    Args:
        module: A network whose functions are scheduled for ``target``.
        inputs: Of the network.
        outputs: Of the network.
        target: A CUDA device; there need not be one here.

    Raises:
        BuildFailed: TVM or the compiler of CUDA source rejected a function; names it.
        NoCudaCompiler: there is no such compiler.
        UnsupportedWorkload: the network calls an operator that is no compiled function.
    """
    walk = _Walk(named_functions(module))
    main = module[ENTRY]
    given = [walk.declare(parameter, f"input_{n}") for n, parameter in enumerate(main.params)]
    for binding in bindings_of(main):
        walk.bind(binding)
    results = _flat(walk.value(main.body.body))
    compiled = compile_functions({name: it[0] for name, it in walk.functions.items()}, target)
    programs = {
        name: DeviceProgram(compiled[name], names) for name, (_, names) in walk.functions.items()
    }
    return plan_of_calls(
        programs,
        walk.calls,
        walk.sizes,
        walk.constants,
        [*zip(inputs, given, strict=True)],
        [*zip(outputs, results, strict=True)],
    )


def compile_functions(functions: Mapping[str, IRModule], target: Target) -> dict[str, CudaProgram]:
    """Machine code of functions, each a module with one function ``main``, by name.

    TVM makes the source one after the other; several are compiled at a time.

    Raises:
        BuildFailed: one is rejected; names it.
        NoCudaCompiler: there is no compiler for CUDA source.
    """
    compiler = find_cuda_compiler()
    options = cuda_measuring.compiler_options()

    def cubin(named: tuple[str, str]) -> bytes:
        name, source = named
        with _naming(name):
            return compiler.compile(source, cubin_architecture(target.processor), options)

    lowered = lowered_functions(functions, target)
    sources = {}
    for name, kernels in lowered.items():
        with _naming(name):
            sources[name] = cuda_source(kernels, target)
    # NVRTC and nvcc let other threads run.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        cubins = dict(zip(sources, pool.map(cubin, sources.items()), strict=True))
    fast = cuda_measuring.fast_math()
    return {name: program_of(lowered[name], cubins[name], fast_math=fast) for name in lowered}


def lowered_functions(
    functions: Mapping[str, IRModule], target: Target
) -> dict[str, LoweredKernels]:
    """Kernels and launches of functions, as of :func:`compile_functions`.

    Raises:
        BuildFailed: TVM rejects one, or it is no sequence of launches; names it.
    """
    found = {}
    for name, module in functions.items():
        with _naming(name):
            found[name] = lower_kernels(module, target)
    return found


@contextmanager
def _naming(task: str) -> Iterator[None]:
    try:
        yield
    except BuildFailed as error:
        raise BuildFailed(f"task {task!r}: {error}") from error


def named_functions(module: IRModule) -> dict[str, tuple[IRModule, tuple[str, ...]]]:
    """Functions that are called, each as a module of its own, and what it calls its tensors."""
    found = {}
    for name, _ in tensor_calls(module):
        if name not in found:
            alone = callable_module(module_of(module[name])[0])
            names = tuple(str(parameter.name) for parameter in alone[ENTRY].params)
            found[name] = alone, names
    return found


@define(eq=False)
class _Walk:
    """What ``main`` does, as far as it was read.

    Attributes:
        functions: Called functions with the names of their tensors, by name.
        calls: Of them, in order.
        sizes: Bytes of values that are no constants, by name.
        constants: Other values.
    """

    functions: Mapping[str, tuple[IRModule, tuple[str, ...]]]
    calls: list[NamedCall] = field(factory=list)
    sizes: dict[str, int] = field(factory=dict)
    constants: dict[str, NDArray[Any]] = field(factory=dict)
    _values: dict[Any, Any] = field(factory=dict, init=False)

    def declare(self, variable: Any, name: str) -> str:
        """A tensor of the network as a value of this name."""
        self._values[variable] = self._new(variable.ty, name)
        return name

    def bind(self, binding: Any) -> None:
        """Read one binding.

        Raises:
            UnsupportedWorkload: it is no call of a compiled function and no view.
        """
        value = binding.value
        operator = operator_of(value)
        if operator == "call_tir":
            self._values[binding.var] = self._call(
                str(value.args[0].name_hint), value, binding.var
            )
        elif (viewed := _viewed(value, operator)) is not None:
            # Row-major order is the same in every shape.
            self._values[binding.var] = self.value(viewed)
        elif operator:
            raise UnsupportedWorkload(
                f"operator {operator!r} of the network has no kernel: on a CUDA device every "
                "operator has to become a compiled function"
            )
        else:
            self._values[binding.var] = self.value(value)

    def value(self, expression: Any) -> Any:
        """The name of a value, or those of a tuple of values."""
        if isinstance(expression, Var):
            return self._values[expression]
        if isinstance(expression, Tuple):
            return tuple(map(self.value, expression.fields))
        if isinstance(expression, relax.TupleGetItem):
            return self.value(expression.tuple_value)[expression.index]
        if isinstance(expression, GenericConst):
            return self._constant(expression)
        raise UnsupportedWorkload(
            f"the network holds {type(expression).__name__}, which no CUDA kernel computes"
        )

    def _call(self, name: str, call: Any, result: Any) -> Any:
        made = self._new(result.ty, f"value_{len(self.calls)}")
        operands = [*map(self.value, call.args[1].fields), *_flat(made)]
        self.calls.append(NamedCall(name, tuple(operands)))
        return made

    def _new(self, kind: Any, name: str) -> Any:
        if isinstance(kind, relax.TupleType):
            parts = enumerate(kind.fields)
            return tuple(self._new(part, f"{name}_{number}") for number, part in parts)
        variable = relax.Var(name, kind)
        shape = shape_of(variable)
        if shape is None:
            raise UnsupportedWorkload(f"{name!r} of the network is {kind}: no tensor of one shape")
        self.sizes[name] = max(1, prod(shape) * _bytes_of(dtype_of(variable)))
        return name

    def _constant(self, constant: Any) -> str:
        if constant not in self._values:
            array = array_of(constant)
            assert array is not None  # it is a constant
            name = f"constant_{len(self.constants)}"
            self.constants[name] = np.ascontiguousarray(array)
            self._values[constant] = name
        return str(self._values[constant])


def _viewed(value: Any, operator: str) -> Any:
    """What a reshape is of, in either of its forms; None for all else."""
    if operator == "reshape":
        return value.args[0]
    if operator == "call_pure_packed":
        function = getattr(value.args[0], "global_symbol", "")
        return value.args[1] if str(function) == _RESHAPE else None
    return None


def _bytes_of(dtype: str) -> int:
    return -(-int(DataType(dtype).bits) // 8)


def _flat(value: Any) -> list[str]:
    if isinstance(value, tuple):
        return [name for part in value for name in _flat(part)]
    return [value]

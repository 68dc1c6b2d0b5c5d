"""A network, prepared and cut into tasks, and how it is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax
from tvm.ir import IRModule
from tvm.ir.transform import Sequential
from tvm.relax.backend.cpu_generic import pipeline

from autotune.backends import BuildFailed, InvalidSchedule
from autotune.errors import AutotuneError
from autotune.networks import CompiledNetwork, LoadOptions, NetworkProgram, NetworkTask
from autotune.networks.arrays import as_numpy, check_examples, random_examples
from autotune.networks.cuda_file import cuda_network
from autotune.store.records import Record
from autotune.targets import Target
from autotune_tvm import compiler
from autotune_tvm.networks.apply import apply_functions, default_function
from autotune_tvm.networks.device_plan import device_plan
from autotune_tvm.networks.executable import RelaxNetwork
from autotune_tvm.networks.extraction import extract_tasks
from autotune_tvm.networks.graph import ENTRY, constant_bytes
from autotune_tvm.networks.kernels import NetworkKernel, recorded_function, with_kernels
from autotune_tvm.networks.pipeline import run_passes
from autotune_tvm.networks.prepack import prepack_weights
from autotune_tvm.networks.sources.source import (
    Source,
    input_tensors,
    output_tensors,
)
from autotune_tvm.relax_pipelines import PIPELINE, register

__all__ = ["RelaxProgram", "build_module", "load_network"]


class RelaxProgram(NetworkProgram):
    """A network in Relax.

    Attributes:
        module: What the passes made: ``main``, and the functions that it calls.
    """

    backend = "tvm"

    def __init__(self, source: Source, options: LoadOptions) -> None:
        self.name = source.name
        self.inputs = input_tensors(source.module)
        self.outputs = output_tensors(source.module, source.outputs)
        self._examples = check_examples(self.inputs, source.examples)
        self.writes = source.writes
        self.fixed = source.fixed
        self._run = source.run
        self.module, self.passes = run_passes(
            source.module, options.target, options.threads, options.passes, options.on_pass
        )
        self.tasks: tuple[NetworkTask, ...] = extract_tasks(self.module)
        self.weight_bytes = constant_bytes(self.module)

    def example_inputs(self) -> tuple[Any, ...]:
        """Those it was loaded with, else random ones of one seed."""
        return random_examples(self.inputs) if self._examples is None else self._examples

    def reference(self, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """What the model computes in torch; None for a Relax module."""
        return None if self._run is None else self._run([as_numpy(value) for value in inputs])

    def build(
        self, chosen: Mapping[str, Record | None], target: Target, threads: int
    ) -> CompiledNetwork:
        """Compile the network; weights that a schedule packs are packed here.

        For a CUDA device, kernels are compiled and nothing runs: there need not be one here.

        Raises:
            BuildFailed: the compiler rejected it; names the task.
            InvalidSchedule: a record cannot be replayed; names the task.
        """
        functions: dict[str, Any] = {}
        kernels: list[NetworkKernel] = []
        for task in self.tasks:
            record = chosen.get(task.name)
            try:
                if record is None:
                    functions[task.name] = default_function(task.program, target, threads)
                    continue
                made = recorded_function(task.name, task.program, record, target, threads)
            except InvalidSchedule as error:
                raise InvalidSchedule(f"task {task.name!r}: {error}") from error
            if isinstance(made, NetworkKernel):
                kernels.append(made)
            else:
                functions[task.name] = made
        scheduled = apply_functions(self.module, functions)
        if target.kind == "cuda":
            plan = device_plan(scheduled, self.inputs, self.outputs, target)
            return cuda_network(plan, target)
        scheduled, packed = prepack_weights(scheduled, target, threads)
        linked = with_kernels(scheduled, kernels, threads)
        names = [task.name for task in self.tasks]
        built = build_module(linked.module, target, threads)
        packed |= linked.packed
        return RelaxNetwork(built, self.inputs, names, threads, packed, linked.library)


def load_network(source: Source, options: LoadOptions) -> RelaxProgram:
    """Prepare a network and cut it into tasks.

    Raises:
        UnsupportedWorkload: an input or an output is no tensor of a fixed shape.
        InvalidValueError: the example inputs are not those of the network.
        UnknownNameError: there is no pass of a name in ``options.passes``.
        BuildFailed: a pass failed.
    """
    return RelaxProgram(source, options)


def build_module(module: IRModule, target: Target, threads: int) -> Any:
    """Let TVM compile a module whose functions are scheduled.

    Returns:
        An executable of Relax's virtual machine.

    Raises:
        BuildFailed: TVM or LLVM rejected it; names the function where one alone is rejected, too.
    """
    described = compiler.described_target(target, threads)
    lowering = [
        *pipeline.dataflow_lower_passes(described),
        *pipeline.finalize_passes(described),
    ]
    register()
    try:
        return relax.build(
            module, described, relax_pipeline=Sequential(lowering), tir_pipeline=PIPELINE
        )
    except Exception as error:  # TVM raises whatever its passes raise
        name = _rejected(module, target, threads)
        where = f"task {name!r}: " if name else ""
        raise BuildFailed(f"{where}{compiler.brief(error)}") from error


def _rejected(module: IRModule, target: Target, threads: int) -> str:
    """The first function that does not compile by itself; "" where all do."""
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            continue
        alone = IRModule({ENTRY: function.with_attr("global_symbol", ENTRY)})
        try:
            compiler.compile_module(alone, target, threads)
        except AutotuneError:
            return str(variable.name_hint)
    return ""

"""A frontend without a compiler, for tests: chains of workloads on the reference backend.

A model is a chain of layers. Each takes what the one before it gives as its first input; its
other inputs are weights, drawn from the model's seed. Nothing is merged: that two layers compute
the same is for the caller of a frontend to find out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen

from autotune.backends import BuildRequest, Executable, bind_copies
from autotune.backends.backend import Array
from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.ir.workloads import Workload, random_inputs, reference_outputs
from autotune.ir.workloads.builders import elementwise, gemm
from autotune.networks import (
    CompiledNetwork,
    DeclaredInput,
    FixedInputs,
    Frontend,
    LoadOptions,
    NetworkProgram,
    NetworkTask,
    NetworkTensor,
    PassReport,
)
from autotune.networks.fixed_inputs import fix_inputs
from autotune.plugins import Context
from autotune.store.records import Record
from autotune.targets import Target
from autotune.testing.reference_backend import (
    REFERENCE_BACKEND,
    ReferenceBackend,
    ReferenceProgram,
)

__all__ = [
    "REFERENCE_FRONTEND",
    "ReferenceFrontend",
    "ReferenceLayer",
    "ReferenceModel",
    "three_layers",
]

REFERENCE_FRONTEND = "autotune.testing.reference_frontend:ReferenceFrontend"
"""Import string by which the reference frontend is found."""


@frozen(eq=False)
class ReferenceLayer:
    """Call of a workload.

    Attributes:
        name: Of the node, and of its task.
        workload: What it computes, with one output.
        script: Of the reference backend, for this layer's program.
        view: Whether it counts as one that only gives its input another shape.
    """

    name: str
    workload: Workload
    script: str = "{}"
    view: bool = False


@frozen(eq=False)
class ReferenceModel:
    """A chain of layers.

    Attributes:
        name: What it is called.
        layers: In order; the first input of each has the shape of the output before it.
        seed: Of the weights and of the example inputs.
        unsupported: Name of a node that the frontend refuses, as one of no known operator.
    """

    name: str
    layers: tuple[ReferenceLayer, ...]
    seed: int = 0
    unsupported: str = ""

    @property
    def input(self) -> Array:
        """The example input."""
        return self._drawn(0)[0]

    def weights(self, layer: int) -> list[Array]:
        """All inputs of a layer but the first."""
        return self._drawn(layer)[1:]

    def _drawn(self, layer: int) -> list[Array]:
        rng = np.random.default_rng([self.seed, layer])
        return list(random_inputs(self.layers[layer].workload, rng).values())


def three_layers() -> tuple[ReferenceModel, tuple[Array, ...]]:
    """A small model and its example inputs: two equal products, and a point-wise layer."""
    product = gemm(m=16, n=16, k=16)
    layers = (
        ReferenceLayer("first", product),
        ReferenceLayer("scale", elementwise(m=16, n=16)),
        ReferenceLayer("second", product),
    )
    model = ReferenceModel("three_layers", layers)
    return model, (model.input,)


class ReferenceFrontend(Frontend):
    """Reads a :class:`ReferenceModel`."""

    name = "reference"
    sources = ("a reference model",)
    passes = ("check", "number")
    backend_type: type[ReferenceBackend] = ReferenceBackend
    backend = REFERENCE_BACKEND

    def __init__(self, context: Context | None = None) -> None:
        """Nothing of the context is used."""

    def accepts(self, source: object) -> bool:
        return isinstance(source, ReferenceModel)

    def load(
        self, source: object, example_inputs: Sequence[object] | None, options: LoadOptions
    ) -> NetworkProgram:
        if not isinstance(source, ReferenceModel):
            raise InvalidValueError(f"not a reference model: {type(source).__name__}")
        for name in options.passes:
            if name not in self.passes:
                raise UnknownNameError("pass", name, self.passes)
        model = source
        first = model.layers[0].workload
        tensor = _tensor(first, first.inputs[0].name)
        declared = DeclaredInput(tensor.name, tensor.shape, tensor.dtype, model.input)
        fixed = fix_inputs([declared], options.asked, example_inputs, model.name)
        done = []
        for name in self.passes:
            began = time.perf_counter()
            replaced = options.passes.get(name, _check if name == "check" else _same)
            if replaced is not None:
                model = replaced(model)
                done.append(PassReport(name, time.perf_counter() - began))
                options.on_pass(done[-1])
        return _ReferenceNetwork(model, tuple(done), fixed, self)


def _same(model: ReferenceModel) -> ReferenceModel:
    return model


def _check(model: ReferenceModel) -> ReferenceModel:
    for layer in model.layers:
        if layer.name == model.unsupported:
            raise UnsupportedWorkload(
                f"node {layer.name!r}: operator 'reference.unknown' cannot be imported; "
                "write it with other operators"
            )
    return model


class _ReferenceNetwork(NetworkProgram):
    def __init__(
        self,
        model: ReferenceModel,
        passes: tuple[PassReport, ...],
        fixed: FixedInputs,
        frontend: ReferenceFrontend,
    ) -> None:
        self._model = model
        self._backend = frontend.backend_type()
        self.backend = frontend.backend
        self.fixed = fixed
        self._inputs = (model.input,) if fixed.examples is None else fixed.examples
        self.name = model.name
        self.passes = passes
        first, last = model.layers[0].workload, model.layers[-1].workload
        self.inputs = (_tensor(first, first.inputs[0].name),)
        self.outputs = (_tensor(last, last.outputs[0]),)
        _check_inputs(self.inputs, self._inputs)
        self.tasks = tuple(
            NetworkTask(
                layer.name,
                ReferenceProgram(layer.workload, layer.script),
                1,
                float(layer.workload.flop),
                (layer.name,),
                layer.view,
            )
            for layer in model.layers
        )

    def example_inputs(self) -> tuple[Any, ...]:
        return self._inputs

    def reference(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        value = np.asarray(inputs[0])
        for number, layer in enumerate(self._model.layers):
            value = _run_layer(layer.workload, [value, *self._model.weights(number)])
        return (value,)

    def build(
        self, chosen: Mapping[str, Record | None], target: Target, threads: int
    ) -> CompiledNetwork:
        programs = []
        for layer in self._model.layers:
            record = chosen.get(layer.name)
            candidate = None
            if record is not None:
                candidate = record.on(layer.workload, layer.script).scheduled
            request = BuildRequest(layer.workload, layer.script, candidate, target, threads)
            programs.append(self._backend.build(request))
        scheduled = {name: record.name for name, record in chosen.items() if record is not None}
        return _ReferenceCompiled(self._model, self.inputs, programs, scheduled)


@frozen(eq=False)
class _ReferenceCompiled(CompiledNetwork):
    model: ReferenceModel
    inputs: tuple[NetworkTensor, ...]
    programs: list[Executable]
    scheduled: Mapping[str, str] = field()

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        _check_inputs(self.inputs, inputs)
        value = np.from_dlpack(inputs[0])
        for number in range(len(self.programs)):
            bound = self._bound(number, value)
            bound.run()
            (value,) = bound.outputs()
        return (value,)

    def save(self, path: Path | str) -> tuple[str, ...]:
        try:
            Path(path).write_text(
                json.dumps({"model": self.model.name, "records": self.scheduled})
            )
        except OSError as error:
            raise InvalidValueError(f"{path} cannot be written: {error.strerror}") from error
        return ()

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        return (sum(self.profile(inputs).values()),) * repeats

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        _check_inputs(self.inputs, inputs)
        names = [layer.name for layer in self.model.layers]
        shown = (np.zeros(layer.workload.inputs[0].shape) for layer in self.model.layers)
        return {
            name: self._bound(number, value.astype(self.model.input.dtype)).time(1)
            for number, (name, value) in enumerate(zip(names, shown, strict=True))
        }

    def _bound(self, number: int, value: Array) -> Any:
        workload = self.model.layers[number].workload
        return bind_copies(self.programs[number], workload, [value, *self.model.weights(number)])


def _run_layer(workload: Workload, arrays: Sequence[Array]) -> Array:
    names = [tensor.name for tensor in workload.inputs]
    return reference_outputs(workload, dict(zip(names, arrays, strict=True)))[workload.outputs[0]]


def _tensor(workload: Workload, name: str) -> NetworkTensor:
    tensor = workload.tensors[name]
    return NetworkTensor(name, tensor.shape, tensor.dtype)


def _check_inputs(wanted: Sequence[NetworkTensor], given: Sequence[Any]) -> None:
    text = ", ".join(f"{it.name}: {it.dtype}{list(it.shape)}" for it in wanted)
    if len(wanted) != len(given):
        raise InvalidValueError(f"{len(given)} inputs are given; the network takes {text}")
    for tensor, array in zip(wanted, given, strict=True):
        if tuple(array.shape) != tensor.shape or str(array.dtype) != tensor.dtype:
            found = f"{array.dtype}{list(array.shape)}"
            raise InvalidValueError(f"{tensor.name} is {found}; the network takes {text}")

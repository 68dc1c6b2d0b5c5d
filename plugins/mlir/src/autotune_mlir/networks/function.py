"""A function of a module, as it was read: steps that are workloads, calls and loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.ir.workloads import Workload

__all__ = ["Block", "ModuleFunction", "ModuleLoop", "Step", "TensorType"]

Array = NDArray[Any]


@frozen
class TensorType:
    """A tensor of static shape, in the words of MLIR and of numpy.

    Attributes:
        element: Name of the element type in MLIR.
        shape: Extents.
        dtype: Name of the numpy type.
    """

    element: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def tensor(self) -> str:
        """The type of the tensor."""
        return f"tensor<{'x'.join([*map(str, self.shape), self.element])}>"


@frozen(eq=False)
class Block:
    """Steps in order. Values have numbers.

    Attributes:
        arguments: Values that are given.
        steps: The steps.
        returned: Values that are handed back.
    """

    arguments: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()
    returned: tuple[int, ...] = ()

    @property
    def reads(self) -> set[int]:
        """Values from around it that it reads."""
        inner = [it.what.body.reads for it in self.steps if isinstance(it.what, ModuleLoop)]
        read = {*self.returned, *(number for it in self.steps for number in it.operands)}
        made = {number for it in self.steps for number, _ in it.results}
        return read.union(*inner) - made - {*self.arguments}


@frozen(eq=False)
class ModuleLoop:
    """A block that runs a number of times, on the values that it returned.

    Attributes:
        trips: How often.
        body: The block.
    """

    trips: int
    body: Block


@frozen(eq=False)
class Step:
    """A step.

    Attributes:
        what: A workload; the name of a function that is called; a loop; or None, which gives a
            tensor the shape of its result.
        operands: Values that it reads.
        results: Values that it makes, by number, each with its type.
    """

    what: Workload | str | ModuleLoop | None
    operands: tuple[int, ...]
    results: tuple[tuple[int, TensorType], ...]


@frozen(eq=False)
class ModuleFunction:
    """A function of a module.

    Attributes:
        name: Its name.
        kind: Its type, as MLIR writes it.
        inputs: Of its arguments; () where one is no tensor of static shape.
        outputs: Of its results, likewise.
        constants: Values of it that are the same in every call, by number.
        body: What it computes.
        problem: Why it cannot be read; "" where it was.
    """

    name: str
    kind: str = ""
    inputs: tuple[TensorType, ...] = ()
    outputs: tuple[TensorType, ...] = ()
    constants: Mapping[int, Array] = {}
    body: Block = Block()
    problem: str = ""

    @property
    def calls(self) -> tuple[str, ...]:
        """Names of what it calls, in order."""
        return tuple(it.what for it in _all_steps(self.body) if isinstance(it.what, str))

    @property
    def workload(self) -> Workload | None:
        """The workload that it is as a whole; None where it is anything else."""
        if len(self.body.steps) != 1 or self.constants:
            return None
        (step,) = self.body.steps
        whole = step.operands == self.body.arguments and self.body.returned == tuple(
            number for number, _ in step.results
        )
        return step.what if whole and isinstance(step.what, Workload) else None

    @classmethod
    def from_json(cls, data: Mapping[str, Any], attachments: Sequence[bytes]) -> ModuleFunction:
        """From what the process that reads MLIR says, and the constants that it sends along."""
        constants = {
            number: np.frombuffer(attachments[place], dtype).reshape(shape)
            for number, place, dtype, shape in data["constants"]
        }
        inputs, outputs = (tuple(map(_type, data[it])) for it in ("inputs", "outputs"))
        body = _block(data["body"])
        return cls(data["name"], data["kind"], inputs, outputs, constants, body, data["problem"])


def _all_steps(block: Block) -> Iterator[Step]:
    for step in block.steps:
        yield step
        if isinstance(step.what, ModuleLoop):
            yield from _all_steps(step.what.body)


def _type(data: Sequence[Any]) -> TensorType:
    element, shape, dtype = data
    return TensorType(element, tuple(shape), dtype)


def _block(data: Mapping[str, Any]) -> Block:
    steps = tuple(map(_step, data["steps"]))
    return Block(tuple(data["arguments"]), steps, tuple(data["returned"]))


def _step(data: Mapping[str, Any]) -> Step:
    results = tuple((number, _type(kind)) for number, kind in data["results"])
    what: Workload | str | ModuleLoop | None = data.get("call")
    if "workload" in data:
        what = Workload.from_json(data["workload"])
    elif "trips" in data:
        what = ModuleLoop(data["trips"], _block(data["body"]))
    return Step(what, tuple(data["operands"]), results)

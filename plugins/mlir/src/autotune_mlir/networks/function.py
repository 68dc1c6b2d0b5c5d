"""A function of a module, as it was read: what it computes, calls, and whether it can be run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from autotune.backends import ImportedProgram
from autotune.errors import AutotuneError, UnsupportedWorkload
from autotune.ir.workloads import Workload
from autotune.process.error_codec import error_from_json

__all__ = ["ImportedFunction", "ModuleFunction", "TensorType"]


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
        return f"tensor<{self._inner}>"

    @property
    def buffer(self) -> str:
        """The type of a buffer for it."""
        return f"memref<{self._inner}>"

    @property
    def _inner(self) -> str:
        return "x".join([*map(str, self.shape), self.element])


@frozen(eq=False)
class ImportedFunction:
    """What a function computes.

    Attributes:
        workload: The workload.
        program: The function by itself, on buffers; see
            :mod:`autotune_mlir.importing.reading`.
    """

    workload: Workload
    program: str


@frozen(eq=False)
class ModuleFunction:
    """A function of a module; the backend imports it as it does a file.

    Attributes:
        name: Its name.
        kind: Its type, as MLIR writes it.
        inputs: Of its arguments; () where one is no tensor of static shape.
        outputs: Of its results, likewise.
        calls: The functions that it calls, one name for each call.
        operations: Names of the operations that compute in it, in order.
        flop: Of those operations, as far as their loops are known.
        computes: Whether it does more than to call others.
        problem: Why it cannot be run on arrays; "" where it can.
        imported: What it computes; None where that cannot be expressed.
        refusal: Why it cannot.
    """

    name: str
    kind: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    calls: tuple[str, ...]
    operations: tuple[str, ...]
    flop: float
    computes: bool
    problem: str
    imported: ImportedFunction | None
    refusal: AutotuneError | None

    def as_program(self) -> ImportedProgram:
        """What the backend imports.

        Raises:
            UnsupportedWorkload: the function cannot be expressed, or not even run; says why.
        """
        if self.problem:
            raise UnsupportedWorkload(self.problem)
        if self.imported is None:
            assert self.refusal is not None
            raise self.refusal
        return ImportedProgram(self.imported.workload, self.imported.program)

    @classmethod
    def unread(cls, name: str, error: AutotuneError) -> ModuleFunction:
        """A function that MLIR does not survive to read."""
        return cls(name, "", (), (), (), (), 0.0, True, str(error), None, error)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModuleFunction:
        """From what the process that reads MLIR says."""
        imported = data["imported"] and _imported(data["imported"])
        flop = imported.workload.flop if imported else data["flop"]
        return cls(
            data["name"],
            data["kind"],
            _types(data["inputs"]),
            _types(data["outputs"]),
            tuple(data["calls"]),
            tuple(data["operations"]),
            float(flop),
            bool(data["computes"]),
            data["problem"],
            imported,
            data["refusal"] and error_from_json(data["refusal"]),
        )


def _imported(data: Mapping[str, Any]) -> ImportedFunction:
    workload = Workload.from_json(data["workload"])
    return ImportedFunction(workload, data["program"])


def _types(data: list[list[Any]]) -> tuple[TensorType, ...]:
    return tuple(TensorType(element, tuple(shape), dtype) for element, shape, dtype in data)

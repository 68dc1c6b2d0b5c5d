"""A network for a CUDA device as data: programs, calls in order, and where values lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from attrs import field, frozen
from numpy.typing import NDArray

from autotune.backends import CudaProgram
from autotune.errors import InvalidValueError
from autotune.measure.devices.shared import numpy_type
from autotune.networks.frontend import NetworkTensor
from autotune.networks.plan.placing import place_values, rounded

__all__ = ["DeviceCallPlan", "DevicePlan", "calls_by_task", "place_device_values"]

# Of every address on the device: as of what the driver allocates.
_ALIGNMENT = 256


@frozen
class DeviceCallPlan:
    """One call of a program.

    Attributes:
        task: Name of the program's task.
        arguments: Names of the network's values, by what the program calls them.
    """

    task: str
    arguments: Mapping[str, str]


@frozen(eq=False)
class DevicePlan:
    """A network whose calls follow one another, whatever its inputs are.

    A value that is another one in another shape has that one's name.

    Attributes:
        programs: By name of the task.
        calls: In order.
        sizes: Bytes of every value that is no constant, inputs included, by name.
        constants: Values that are the same in every call, such as weights, by name.
        inputs: The network's inputs.
        input_values: Their values, in order.
        outputs: The network's outputs.
        output_values: Their values, in order; inputs and constants may be among them.

    Raises:
        InvalidValueError: a call, an input or an output is of a program or a value that there is
            not, or an input or an output is larger than its value.
    """

    programs: Mapping[str, CudaProgram] = field(repr=False)
    calls: Sequence[DeviceCallPlan]
    sizes: Mapping[str, int]
    constants: Mapping[str, NDArray[Any]] = field(repr=False)
    inputs: Sequence[NetworkTensor]
    input_values: Sequence[str]
    outputs: Sequence[NetworkTensor]
    output_values: Sequence[str]

    def __attrs_post_init__(self) -> None:
        known = {*self.constants, *self.sizes}
        used = [value for call in self.calls for value in call.arguments.values()]
        unknown = sorted({*used, *self.output_values, *self.input_values} - known)
        if unknown:
            raise InvalidValueError(f"a network uses the value {unknown[0]!r}, which nothing is")
        for call in self.calls:
            if call.task not in self.programs:
                raise InvalidValueError(f"a network calls {call.task!r}, which is no program")
        sizes = {**self.sizes, **{name: it.nbytes for name, it in self.constants.items()}}
        named = [*zip(self.inputs, self.input_values, strict=True)]
        named += zip(self.outputs, self.output_values, strict=True)
        for tensor, value in named:
            if prod(tensor.shape) * numpy_type(tensor.dtype).itemsize > sizes[value]:
                raise InvalidValueError(f"tensor {tensor.name!r} is larger than its value")

    @property
    def scratch_bytes(self) -> int:
        """What the intermediate arrays of any one program take together."""
        return max(
            (
                sum(rounded(it.bytes, _ALIGNMENT) for it in program.intermediates)
                for program in self.programs.values()
            ),
            default=0,
        )

    def scratch(self, task: str, base: int) -> dict[str, int]:
        """Addresses of a program's intermediate arrays in memory that begins at ``base``."""
        found = {}
        for buffer in self.programs[task].intermediates:
            found[buffer.name] = base
            base += rounded(buffer.bytes, _ALIGNMENT)
        return found

    def lifetimes(self) -> dict[str, tuple[int, int]]:
        """First and last call that each value is needed in, by name; -1 is before all calls.

        Inputs and outputs are needed to the end: inputs are copied in before, outputs out after.
        """
        found: dict[str, tuple[int, int]] = {}
        for name in self.input_values:
            found[name] = -1, len(self.calls)
        for name in self.output_values:
            found.setdefault(name, (len(self.calls), len(self.calls)))
        for number, call in enumerate(self.calls):
            for name in call.arguments.values():
                first, last = found.get(name, (number, number))
                found[name] = min(first, number), max(last, number)
        return {name: found.get(name, (-1, -1)) for name in self.sizes}


def place_device_values(plan: DevicePlan) -> tuple[dict[str, int], int]:
    """Offsets of the values in one piece of memory, and its size; as :func:`place_values`."""
    return place_values(plan.sizes, plan.lifetimes(), _ALIGNMENT)


def calls_by_task(plan: DevicePlan) -> Iterator[tuple[str, list[DeviceCallPlan]]]:
    """Each task that is called, with its calls."""
    for task in plan.programs:
        calls = [call for call in plan.calls if call.task == task]
        if calls:
            yield task, calls

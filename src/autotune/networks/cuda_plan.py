"""Plans of networks for CUDA devices: their programs, and plans of calls on values by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from autotune.backends import CudaProgram
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.networks.frontend import NetworkTensor
from autotune.networks.graph import Requirement
from autotune.networks.plan.placing import place_values, rounded
from autotune.networks.plan.plan import (
    Array,
    Call,
    Constant,
    Copy,
    HostCall,
    Leaf,
    Operand,
    Place,
    Plan,
    unrolled,
)

__all__ = [
    "ALIGNMENT",
    "DeviceCheck",
    "DeviceProgram",
    "NamedCall",
    "device_steps",
    "plan_of_calls",
    "scratch_addresses",
    "scratch_bytes",
]

ALIGNMENT = 256
"""Of every address on the device: as of what the driver allocates."""

_MOST_STEPS = 100_000


@frozen
class DeviceProgram:
    """A program of a plan.

    Attributes:
        program: Its kernels.
        arguments: What they call the tensors that a call gives, in order.
    """

    program: CudaProgram
    arguments: tuple[str, ...]


@frozen
class DeviceCheck:
    """A condition on the last outputs of a plan, which callers are not given.

    Attributes:
        output: Number of the output.
        requirement: What it must hold.
        label: What it is checked for, in messages.
    """

    output: int
    requirement: Requirement
    label: str


@frozen
class NamedCall:
    """A call of a program on values by their names, in the order of its arguments."""

    program: str
    values: tuple[str, ...]


def device_steps(plan: Plan[DeviceProgram]) -> tuple[Call | Copy, ...]:
    """Steps that are put on the stream of a device, in order.

    Raises:
        UnsupportedWorkload: a step runs on the host, or there are too many.
    """
    found: list[Call | Copy] = []
    for step in unrolled(plan.steps):
        if not isinstance(step, Call | Copy):
            raise UnsupportedWorkload(f"{_named(step)} runs on the host, and not on a device")
        found.append(step)
        if len(found) > _MOST_STEPS:
            raise UnsupportedWorkload(
                f"the loops of the network make more than {_MOST_STEPS:,} calls of programs, "
                "which is more than one graph of a device is made of"
            )
    return tuple(found)


def _named(step: Leaf) -> str:
    if isinstance(step, HostCall):
        return f"operator {step.operator.kind!r} of {step.label!r}"
    return f"a step ({type(step).__name__}) of the network"


def scratch_bytes(plan: Plan[DeviceProgram]) -> int:
    """Bytes of the intermediate arrays of any one program together."""
    return max(
        (
            sum(rounded(it.bytes, ALIGNMENT) for it in each.program.intermediates)
            for each in plan.programs.values()
        ),
        default=0,
    )


def scratch_addresses(program: CudaProgram, base: int) -> dict[str, int]:
    """Addresses of a program's intermediate arrays in memory that begins at ``base``, by name."""
    found = {}
    for buffer in program.intermediates:
        found[buffer.name] = base
        base += rounded(buffer.bytes, ALIGNMENT)
    return found


def plan_of_calls(
    programs: Mapping[str, DeviceProgram],
    calls: Sequence[NamedCall],
    sizes: Mapping[str, int],
    constants: Mapping[str, Array],
    inputs: Sequence[tuple[NetworkTensor, str]],
    outputs: Sequence[tuple[NetworkTensor, str]],
) -> Plan[DeviceProgram]:
    """A plan of calls on values that have names.

    A value that is another one in another shape has that one's name.

    Args:
        programs: By name of the task.
        calls: In order; a value is written before it is read.
        sizes: Bytes of every value that is no constant, by name.
        constants: Values that are the same in every call, by name.
        inputs: The network's inputs, and the names of their values.
        outputs: Its outputs, and the names of theirs.

    Raises:
        InvalidValueError: a call or an output is of a value that there is not, or an input or an
            output is of another size than its value.
    """
    given = {value: number for number, (_, value) in enumerate(inputs)}
    held = {**sizes, **{name: it.nbytes for name, it in constants.items()}}
    results = [value for _, value in outputs]
    for name in (*(it for call in calls for it in call.values), *results, *given):
        if name not in held:
            raise InvalidValueError(f"a network uses the value {name!r}, which nothing is")
    bytes_of = {}
    for tensor, value in (*inputs, *outputs):
        bytes_of[value] = Operand(Place("arena"), tensor.shape, tensor.dtype).bytes
        if bytes_of[value] > held[value]:
            raise InvalidValueError(f"tensor {tensor.name!r} is larger than its value")
    places = {name: Place("constant", number) for number, name in enumerate(constants)}
    places |= {name: Place("input", number) for name, number in given.items()}
    for number, name in enumerate(results):
        places.setdefault(name, Place("output", number))
    lives = _lives(calls, places)
    own = {name: sizes[name] for name in lives}
    offsets, arena = place_values(own, lives, ALIGNMENT)
    places |= {name: Place("arena", 0, offset) for name, offset in offsets.items()}
    copies = [
        Copy(places[name], Place("output", number), bytes_of[name])
        for number, name in enumerate(results)
        if places[name] != Place("output", number)
    ]
    steps = [Call(call.program, tuple(places[it] for it in call.values)) for call in calls]
    return Plan(
        programs,
        {name: name for name in programs},
        (*steps, *copies),
        tuple(Constant(array, array.nbytes) for array in constants.values()),
        (),
        arena,
        tuple(tensor for tensor, _ in inputs),
        tuple(tensor for tensor, _ in outputs),
    )


def _lives(calls: Sequence[NamedCall], placed: Mapping[str, Place]) -> dict[str, tuple[int, int]]:
    """First and last call that each value is needed in which has no place yet."""
    found: dict[str, tuple[int, int]] = {}
    for number, call in enumerate(calls):
        for name in call.values:
            if name not in placed:
                found[name] = found.get(name, (number, number))[0], number
    return found

"""The arrays of a task on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from attrs import define

from autotune.backends.backend import Array
from autotune.ir.workloads import Workload
from autotune.measure.devices.checking import DeviceChecker, ExpectedOnDevice, wrong_outputs
from autotune.measure.devices.device import Block, Device
from autotune.measure.validation import Expected

__all__ = ["TaskArrays", "rotation"]

# Data that is this many times as large as the last level of cache is not found in it.
_TIMES_CACHE = 3
_MOST_SETS = 4096
_SHARE_OF_MEMORY = 0.4
_FLOAT_POISON, _INTEGER_POISON = 0xFF, 0x80


def rotation(io_bytes: int, cache_bytes: int, free_bytes: int) -> int:
    """Sets of arrays between which calls rotate, so that each finds the cache without its own.

    A power of two: so many are what graphs of calls go through in few turns.

    Args:
        io_bytes: Of one set.
        cache_bytes: Of the last level of cache.
        free_bytes: Of the device's memory, of which less than half is used.
    """
    wanted = -(-_TIMES_CACHE * cache_bytes // max(1, io_bytes)) + 1
    affordable = int(_SHARE_OF_MEMORY * free_bytes) // max(1, io_bytes)
    most = max(1, min(affordable, _MOST_SETS))
    return int(min(1 << (wanted - 1).bit_length(), 1 << (most.bit_length() - 1)))


@define(eq=False)
class TaskArrays:
    """Inputs, outputs and references of a task on a device.

    Attributes:
        device: The device.
        workload: What programs compute.
        sets: Inputs and outputs by name, a set for each call of a rotation.
        pristine: Copies of the inputs, which no program is given.
        expected: The references, in the order of the outputs.
        checker: Compares.
        blocks: All of them.
    """

    device: Device
    workload: Workload
    sets: Sequence[Mapping[str, Block]]
    pristine: Mapping[str, Block]
    expected: Sequence[ExpectedOnDevice]
    checker: DeviceChecker
    blocks: Sequence[Block]

    @staticmethod
    def load(
        checker: DeviceChecker,
        workload: Workload,
        inputs: Sequence[Array],
        expected: Sequence[Expected],
        *,
        cold: bool,
    ) -> TaskArrays:
        """Copy the arrays of a task to a device.

        Args:
            checker: Compares; its device is used.
            workload: What programs compute.
            inputs: In the workload's order.
            expected: Of each output.
            cold: Whether calls rotate between sets, so that the L2 cache is cold for each.

        Raises:
            CudaError: the device has too little memory.
        """
        device = checker.device
        made: list[Block] = []
        with ExitStack() as undo:

            def allocated(name: str, size: int) -> Block:
                block = device.allocate(name, size)
                undo.callback(device.free, block)
                made.append(block)
                return block

            pristine = {}
            for tensor, array in zip(workload.inputs, inputs, strict=True):
                pristine[tensor.name] = allocated(f"copy of {tensor.name}", array.nbytes)
                device.upload(pristine[tensor.name], array)
            references = [checker.expect(want, allocated) for want in expected]
            cache = max((level.size_bytes for level in device.device.target.caches), default=0)
            free = device.driver.memory()[0]
            count = rotation(workload.io_bytes, cache, free) if cold else 1
            tensors = workload.tensors
            names = [*(tensor.name for tensor in workload.inputs), *workload.outputs]
            sets = [
                {name: allocated(name, tensors[name].bytes) for name in names}
                for _ in range(count)
            ]
            arrays = TaskArrays(device, workload, sets, pristine, references, checker, made)
            for number in range(count):
                arrays.restore(number)
            undo.pop_all()
        return arrays

    @property
    def bytes(self) -> int:
        """Bytes that they take of the device."""
        return sum(block.bytes for block in self.blocks)

    def restore(self, number: int = 0) -> None:
        """Put fresh inputs in place."""
        for name, source in self.pristine.items():
            self.device.driver.copy(self.sets[number][name].pointer, source.pointer, source.bytes)

    def poison(self) -> None:
        """Overwrite the outputs of the first set: with NaN, or with small integers."""
        for name in self.workload.outputs:
            block, element = self.sets[0][name], self.workload.tensors[name].element
            byte = _FLOAT_POISON if element.is_float else _INTEGER_POISON
            self.device.driver.fill(block.pointer, byte, block.bytes)

    def wrong(self, intermediates: Sequence[Block]) -> str | None:
        """Describe what a program that has run on the first set did wrong.

        Args:
            intermediates: Arrays that are the program's own.
        """
        first = self.sets[0]
        outputs = [first[name] for name in self.workload.outputs]
        wrong = wrong_outputs(self.checker, outputs, self.expected)
        if wrong is None:
            wrong = self._damaged([*first.values(), *intermediates])
        for name, pristine in self.pristine.items():
            if wrong is None and self.checker.differs(first[name], pristine):
                wrong = f"input {name!r} was changed"
        return wrong

    def _damaged(self, blocks: Sequence[Block]) -> str | None:
        for block in blocks:
            if self.device.written_beside(block):
                return f"memory beside {block.name!r} was written to"
        return None

    def unload(self) -> None:
        """Free everything."""
        for block in self.blocks:
            self.device.free(block)

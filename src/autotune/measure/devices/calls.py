"""Launching and timing a program that is loaded on a device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from attrs import define, field

from autotune.backends import CudaProgram
from autotune.measure.timing import LONG_SECONDS, Timed
from autotune.runtime.device import Device, GuardedArray
from autotune.runtime.loaded import LoadedKernels, Parameters

__all__ = ["MOST_IN_GRAPH", "DeviceCall", "is_warm", "warm_up"]

MOST_IN_GRAPH = 64
"""Calls that are launched as one graph."""

_WARM_SECONDS, _MOST_WARM_SECONDS = 5e-3, 0.1
_STEADY = 1.01
_STEADY_TURNS = 3


@define(eq=False)
class DeviceCall:
    """A program whose kernels are loaded, with its arguments.

    Successive calls use the sets of arguments in turn.

    Attributes:
        device: The device.
        kernels: What is run.
        sets: Arrays by name, for one call each.
        intermediates: Those of them that are its own.
    """

    device: Device
    kernels: LoadedKernels
    sets: Sequence[Mapping[str, GuardedArray]]
    intermediates: Sequence[GuardedArray]
    _parameters: list[Parameters] = field(init=False)
    _graphs: dict[tuple[int, int], int] = field(factory=dict, init=False)
    _turn: int = field(init=False)
    # Of the last call; not known before the first.
    _seconds: float = field(default=math.inf, init=False)

    def __attrs_post_init__(self) -> None:
        self._parameters = [
            self.kernels.parameters({name: block.pointer for name, block in blocks.items()})
            for blocks in self.sets
        ]
        # That of the first set is for checking.
        self._turn = 1 % len(self._parameters)

    @staticmethod
    def load(
        device: Device, program: CudaProgram, tensors: Sequence[Mapping[str, GuardedArray]]
    ) -> DeviceCall:
        """Load a program and allocate what it needs beside the tensors of its workload.

        Args:
            device: The device.
            program: The program.
            tensors: Tensors by name: one set, or several that are used in turn.

        Raises:
            CudaError: the device refuses the machine code, or has too little memory.
            InvalidValueError: a launch takes something that is no tensor and no intermediate.
        """
        names = {it.name for it in program.intermediates}
        with ExitStack() as undo:
            kernels = LoadedKernels.load(device.driver, program, {*names, *tensors[0]})
            undo.callback(kernels.unload)
            own = [device.guarded(it.name, it.bytes) for it in program.intermediates]
            undo.pop_all()
        mine = {array.name: array for array in own}
        return DeviceCall(device, kernels, [{**blocks, **mine} for blocks in tensors], own)

    def unload(self) -> None:
        """Free what the program has on the device."""
        driver = self.device.driver
        for graph in self._graphs.values():
            driver.destroy_graph(graph)
        for array in self.intermediates:
            array.free()
        self.kernels.unload()

    def poison(self) -> None:
        """Overwrite the intermediates, so that a kernel that writes nothing cannot pass."""
        buffers = self.kernels.program.intermediates
        for array, buffer in zip(self.intermediates, buffers, strict=True):
            array.fill(0xFF if buffer.is_float else 0x80)

    def run(self) -> float:
        """Run once on the first set; seconds on the device."""
        self._seconds = self.device.seconds(lambda stream: self._launch(0, stream))
        return self._seconds

    def time(self, number: int) -> float:
        """Seconds per call over ``number`` calls or a few more.

        Calls are launched as CUDA graphs of up to 64, as one launch from here takes longer than a
        short kernel. One graph goes before, so that the device is at work when the time begins,
        and not waiting for the first launch. A call that was long is launched by itself.
        """
        if number == 1 and self._seconds >= LONG_SECONDS:
            first = self._next(1)
            self._seconds = self.device.seconds(lambda stream: self._launch(first, stream))
            return self._seconds
        size = min(number, MOST_IN_GRAPH)
        if len(self.sets) > 1:
            # So that graphs begin at few sets.
            size = 1 << (size - 1).bit_length()
        turns = -(-number // size)
        before, *graphs = [self._graph(self._next(size), size) for _ in range(turns + 1)]
        driver = self.device.driver

        def launched(stream: int) -> None:
            for graph in graphs:
                driver.launch_graph(graph, stream)

        driver.launch_graph(before, self.device.stream)
        self._seconds = self.device.seconds(launched) / (size * turns)
        return self._seconds

    def _next(self, count: int) -> int:
        """The set of the first of the next calls; each set has its turn when all others had."""
        first = self._turn
        self._turn = (first + count) % len(self._parameters)
        return first

    def _graph(self, first: int, size: int) -> int:
        """A graph of calls on successive sets."""
        key = first, size
        if key not in self._graphs:

            def launched(stream: int) -> None:
                for number in range(first, first + size):
                    self._launch(number, stream)

            driver, stream = self.device.driver, self.device.stream
            self._graphs[key] = self.device.graph_of(launched)
            driver.upload_graph(self._graphs[key], stream)
            driver.synchronize(stream)
        return self._graphs[key]

    def _launch(self, number: int, stream: int) -> None:
        self.kernels.launch(self._parameters[number % len(self._parameters)], stream)


def warm_up(call: Timed) -> None:
    """Call until the clocks of a device have risen: until calls get no faster any more."""
    turns: list[float] = []
    size, spent = 1, 0.0
    while spent < _MOST_WARM_SECONDS and not is_warm(turns, spent):
        seconds = call.time(size)
        turns.append(seconds)
        spent += seconds * size
        if seconds * size < _WARM_SECONDS / 16 and size < MOST_IN_GRAPH:
            size = min(MOST_IN_GRAPH, size * 8)
            # Those of other sizes have other shares of overhead.
            turns.clear()


def is_warm(turns: Sequence[float], spent: float) -> bool:
    """Return whether a device has reached its clocks.

    Args:
        turns: Seconds per call of successive turns of one size.
        spent: Seconds of all turns.
    """
    if spent < _WARM_SECONDS or len(turns) <= _STEADY_TURNS:
        return False
    latest = turns[-_STEADY_TURNS:]
    return min(turns[:-_STEADY_TURNS]) <= _STEADY * min(latest)

"""Programs of workloads on a CPU, as a plan calls them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from attrs import field, frozen

from autotune.backends import BuildRequest, InvalidSchedule
from autotune.backends.native import NativeBackend
from autotune.backends.native.executable import Layout
from autotune.backends.native.exports.kernel import Part, scratch_parts
from autotune.backends.native.printed import printed_program
from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.runtime.plan import PackedOperand
from autotune.sketches import Candidate
from autotune.targets import Target

__all__ = ["NativeProgram", "native_program", "scratch_bytes"]


@frozen(eq=False)
class NativeProgram:
    """A printed program.

    It is called as ``run(arrays, launch, pool)``, where ``arrays`` holds the addresses of what the
    workload reads and writes, then those of scratch buffers and of packed constants.

    Attributes:
        request: What is printed.
        text: In LLVM IR.
        layout: Its scratch buffers and packed constants.
        parts: Where those scratch buffers lie in scratch memory that hold no packed constants.
        fixed_scratch: Bytes of that memory.
        thread_scratch: Bytes of it for each thread, beside those.
    """

    request: BuildRequest
    text: str = field(repr=False)
    layout: Layout
    parts: tuple[Part, ...]
    fixed_scratch: int
    thread_scratch: int

    @property
    def own_arrays(self) -> int:
        """Number of the inputs and outputs of its workload."""
        workload = self.request.workload
        return len(workload.inputs) + len(workload.outputs)

    @property
    def arrays(self) -> int:
        """Number of all arrays."""
        return self.own_arrays + len(self.layout.scratch)

    @property
    def packed(self) -> tuple[PackedOperand, ...]:
        """Arrays that are made of constants before it runs."""
        found = []
        for entry, group in groupby(self.layout.packed, lambda it: it.entry):
            items = [*group]
            sizes = (self.layout.scratch[it.scratch].bytes(1) for it in items)
            found.append(PackedOperand(entry, items[0].position, tuple(sizes)))
        return tuple(found)

    @property
    def positions(self) -> tuple[int, ...]:
        """Among its arrays, of the arguments of a call."""
        own = self.own_arrays
        return (*range(own), *(own + it.scratch for it in self.layout.packed))

    def scratch_bytes(self, threads: int) -> int:
        """Size of its scratch memory."""
        return self.fixed_scratch + self.thread_scratch * threads


def native_program(
    workload: Workload, candidate: Candidate | None, target: Target, threads: int
) -> NativeProgram:
    """Print the program of a workload.

    Args:
        workload: What it computes.
        candidate: A schedule of it or of an equal one; None for loops over the axes as they are.
        target: A CPU.
        threads: How many it is called with.

    Raises:
        UnsupportedWorkload: the backend does not know an element type of it.
        InvalidSchedule: the candidate is of another workload, or cannot be printed.
    """
    try:
        own_candidate = None if candidate is None else candidate.on(workload)
    except InvalidValueError as error:
        raise InvalidSchedule(str(error)) from error
    NativeBackend().check_workload(workload)
    request = BuildRequest(workload, None, own_candidate, target, threads)
    program = printed_program(request)
    own = len(workload.inputs) + len(workload.outputs)
    parts, fixed, each = scratch_parts(program.layout, own)
    return NativeProgram(request, program.text, program.layout, parts, fixed, each)


def scratch_bytes(programs: Iterable[NativeProgram], threads: int) -> int:
    """Size of the scratch memory that serves any of several programs."""
    return max((it.scratch_bytes(threads) for it in programs), default=0)

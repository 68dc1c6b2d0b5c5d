"""Programs as LLVM IR: printed now, or before.

To derive and print the program of a large schedule takes as long as to compile it, and a network
has dozens of them. What is printed is kept beside objects, under a digest of all that it is made
from, the modules that make it included.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from functools import lru_cache
from pathlib import Path

from attrs import field, frozen

from autotune.backends.backend import BuildRequest
from autotune.backends.native.backend import NativeBackend, candidate_of
from autotune.backends.native.executable import Layout, ScratchMemory
from autotune.backends.native.machine_code import object_cache
from autotune.ir.workloads import Workload
from autotune.sketches import Candidate, Tensorize
from autotune.sketches.intrinsics import INTRINSICS

__all__ = ["PrintedProgram", "printed_program"]

_OWN_PACKAGE = "autotune"
_FOLDER = Path(__file__).parents[2]
# What a text depends on beside the candidate and the target.
_PRINTERS = ("backends/native", "ir", "lower", "nest", "sketches")


@frozen
class PrintedProgram:
    """A printed program.

    It is called as ``run(arrays, launch, pool)``, where ``arrays`` holds the addresses of what the
    workload reads and writes, then those of scratch buffers and of packed constants.

    Attributes:
        text: In LLVM IR.
        layout: Its scratch buffers and packed constants.
        own: Number of the inputs and outputs of its workload.
    """

    text: str = field(repr=False)
    layout: Layout
    own: int

    @property
    def arrays(self) -> int:
        """Number of all arrays."""
        return self.own + len(self.layout.scratch)

    @property
    def memory(self) -> ScratchMemory:
        """The scratch memory without packed constants."""
        return self.layout.memory(self.own)

    @property
    def positions(self) -> tuple[int, ...]:
        """Among its arrays, of what it reads and writes and then of packed constants."""
        made = (number for it in self.layout.packed for number in it.scratch)
        return (*range(self.own), *(self.own + number for number in made))


def printed_program(request: BuildRequest) -> PrintedProgram:
    """The program of a request.

    Raises:
        InvalidSchedule: its steps or values give no nest that can be printed.
        UnsupportedTarget: it is no x86-64 CPU.
    """
    cache, candidate = object_cache(), candidate_of(request)
    if cache is None or not _is_own(candidate):
        return _printed(request)
    name = _name(request, candidate)
    found = cache.find(name)
    if found is not None:
        content = json.loads(zlib.decompress(found))
        return PrintedProgram(
            content["text"], Layout.from_json(content["layout"]), _own(request.workload)
        )
    made = _printed(request)
    content = {"text": made.text, "layout": made.layout.to_json()}
    cache.keep(name, zlib.compress(json.dumps(content).encode(), 1))
    return made


def _printed(request: BuildRequest) -> PrintedProgram:
    program = NativeBackend().lower(request).program
    layout = Layout.of(program, request.workload)
    return PrintedProgram(str(program.text), layout, _own(request.workload))


def _own(workload: Workload) -> int:
    return len(workload.inputs) + len(workload.outputs)


def _is_own(candidate: Candidate) -> bool:
    """Tell whether nothing of a plugin decides what is printed: its code is in no digest."""
    steps = candidate.sketch.steps
    named = {it.intrinsic for it in candidate.sketch.core_steps if isinstance(it, Tensorize)}
    are_own = all(type(it).__module__.partition(".")[0] == _OWN_PACKAGE for it in steps)
    return are_own and named <= {*INTRINSICS}


def _name(request: BuildRequest, candidate: Candidate) -> str:
    target = request.target
    made_from = (
        *("printed", _printers(), candidate.spelling, target.processor),
        *(str(target.vector_bytes), *sorted(target.features)),
    )
    return hashlib.sha256("\n".join(made_from).encode()).hexdigest()


@lru_cache(maxsize=1)
def _printers() -> str:
    """A digest of the modules that derive and print programs."""
    digest = hashlib.sha256()
    for path in sorted(it for room in _PRINTERS for it in (_FOLDER / room).rglob("*.py")):
        text = path.read_bytes()
        digest.update(f"{path.relative_to(_FOLDER)} {len(text)}\n".encode() + text)
    return digest.hexdigest()

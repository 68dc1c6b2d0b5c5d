"""A kernel: the functions that an export declares, and the candidates that they run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from attrs import field, frozen

from autotune.backends.native.backend import missing_features
from autotune.backends.native.executable import Layout, Part
from autotune.backends.native.exports.features import TILES, Machine
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.ir.workloads import Workload
from autotune.lower import CEmitter, LLVMEmitter, print_candidate
from autotune.sketches import Candidate
from autotune.targets import Target
from autotune.targets.processors import masked_bytes_of

__all__ = [
    "MOST_THREADS",
    "Argument",
    "Call",
    "Kernel",
    "Size",
    "Variant",
    "kernel_of",
]

_C_WORDS = frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if inline
    int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while class new delete this template operator namespace private public
    protected virtual friend using throw try catch bool true false typename main
    """.split()  # noqa: SIM905
)
MOST_THREADS = 1 << 16
"""Largest number of threads that a call accepts."""

_PARAMETERS = ("scratch", "scratch_bytes", "threads", "launch", "pool", "arrays")


@frozen
class Argument:
    """An array that a function takes.

    Attributes:
        name: Its name in C.
        dtype: Element type; "" of memory without one.
        shape: Its extents.
        is_output: Whether it is written.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_output: bool


@frozen
class Size:
    """A function that returns ``fixed + each * threads`` bytes, and takes ``threads`` or nothing.

    Attributes:
        name: Its name.
        fixed: Bytes.
        each: Bytes for each thread; None where it takes nothing.
    """

    name: str
    fixed: int
    each: int | None = None


@frozen
class Call:
    """A function that checks the arrays that it is given, and runs an entry of the program.

    Attributes:
        name: Its name.
        entry: The entry.
        arguments: What it takes; memory of packed constants among it.
        positions: Of each argument, among the arrays of the program.
        scratch: Where buffers lie in the scratch memory, and its size; None where the function
            takes neither scratch memory nor threads.
    """

    name: str
    entry: str
    arguments: tuple[Argument, ...]
    positions: tuple[int, ...]
    scratch: tuple[tuple[Part, ...], Size] | None = None


@frozen(eq=False)
class Variant:
    """The functions for one machine.

    Attributes:
        machine: The machine.
        candidate: What is printed for it.
        arrays: Number of arrays of the program.
        prefix: What the names of its program begin with.
        text: The program as LLVM IR.
        calls: Functions that run something, that of the kernel last.
        sizes: Functions that say how much memory those take.
        uses_tiles: Whether the program uses the tile registers of AMX.
    """

    machine: Machine
    candidate: Candidate
    arrays: int
    prefix: str
    text: str = field(repr=False)
    calls: tuple[Call, ...]
    sizes: tuple[Size, ...]
    uses_tiles: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """Extensions that the processor is asked for; no compiler uses tiles by itself."""
        return _asked_for(self.candidate, self.machine)

    def printed_as_c(self, prefix: str) -> str:
        """The program as C, whose names begin with ``prefix``."""
        emitter = CEmitter(prefix, self.machine.width, self.machine.c_features)
        return str(print_candidate(self.candidate, emitter, self.machine.width).text)


@frozen(eq=False)
class Kernel:
    """A kernel of a workload.

    Attributes:
        name: Of the function that runs it.
        workload: What it computes.
        variants: Its programs, the first that a processor can run being the one it should.
        threads: How many it was tuned for.
    """

    name: str
    workload: Workload
    variants: tuple[Variant, ...]
    threads: int = 1

    @property
    def calls(self) -> tuple[Call, ...]:
        """Functions that can be called; all variants have the same."""
        return self.variants[0].calls

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Functions that say how much memory calls take."""
        return self.variants[0].sizes


def kernel_of(
    name: str, choices: Sequence[tuple[Candidate, Target, Machine]], threads: int = 1
) -> Kernel:
    """The kernel of candidates of one workload, for as many machines.

    Args:
        name: What its function is called.
        choices: Candidates, what they were found for, and what they are exported for.
        threads: How many they were tuned for.

    Raises:
        InvalidValueError: the name is none of C, or the candidates pack different constants.
        UnsupportedTarget: a machine has too few vector registers for its candidate, or lacks
            instructions of it; the machines have several architectures, or cannot be told apart.
        UnsupportedWorkload: a candidate cannot be printed.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in _C_WORDS:
        raise InvalidValueError(
            f"{name!r} is no name of a function in C: letters, digits and underscores, no digit "
            "first, no word of the language"
        )
    _check_machines([machine for _, _, machine in choices])
    variants = []
    for number, (candidate, found_for, machine) in enumerate(choices):
        _check_registers(candidate, found_for, machine)
        variants.append(_variant(name, candidate, machine, f"variant{number}."))
    # The greatest needs first: what has them has those of the others, too.
    variants.sort(key=lambda it: -len(it.features))
    _check_distinct(variants)
    functions = {tuple(call.name for call in variant.calls) for variant in variants}
    if len(functions) > 1:
        raise InvalidValueError(
            "the schedules pack different constants, and their functions differ: export each "
            "target by itself"
        )
    return Kernel(name, choices[0][0].sketch.workload, tuple(variants), threads)


def _check_machines(machines: Sequence[Machine]) -> None:
    first, *others = machines
    for other in others:
        if other.triple != first.triple:
            raise UnsupportedTarget(
                f"one file is for one kind of machine: {first.triple} ({first.name!r}) or "
                f"{other.triple} ({other.name!r})"
            )
        if not first.is_x86:
            raise UnsupportedTarget(
                f"several targets need a processor that says what it has, as x86-64 does: export "
                f"{first.name!r} and {other.name!r} by themselves"
            )


def _check_distinct(variants: Sequence[Variant]) -> None:
    for first, other in pairwise(variants):
        if first.features == other.features:
            raise UnsupportedTarget(
                f"targets {first.machine.name!r} and {other.machine.name!r} have the same "
                "extensions: no program can choose between them"
            )


def _asked_for(candidate: Candidate, machine: Machine) -> tuple[str, ...]:
    """Extensions of a machine that the code for it may use."""
    uses_tiles = bool(missing_features(candidate, frozenset(machine.features) - TILES))
    return tuple(it for it in machine.features if uses_tiles or it not in TILES)


def _check_registers(candidate: Candidate, found_for: Target, machine: Machine) -> None:
    """Refuse a machine that lacks instructions of a schedule, or whose registers hold less."""
    lacking = missing_features(candidate, machine.features)
    if lacking:
        missing = sorted({name for each in lacking.values() for name in each})
        raise UnsupportedTarget(
            f"target {machine.name!r} lacks {', '.join(missing)}, which the schedule of sketch "
            f"{candidate.sketch.name!r} computes with: tune for {machine.name!r}, or name a "
            "target that has them"
        )
    needed = found_for.vector_bytes * found_for.vector_registers
    given = machine.target.vector_bytes * machine.target.vector_registers
    if given < needed:
        raise UnsupportedTarget(
            f"target {machine.name!r} has {machine.target.vector_registers} vector registers of "
            f"{machine.target.vector_bytes} bytes; the schedule of sketch "
            f"{candidate.sketch.name!r} was tuned for {found_for.vector_registers} of "
            f"{found_for.vector_bytes} ({found_for.name}): tune for {machine.name!r}, or name a "
            "target with as many"
        )


def _variant(name: str, candidate: Candidate, machine: Machine, prefix: str) -> Variant:
    workload = candidate.sketch.workload
    emitter = LLVMEmitter(
        prefix=prefix,
        attributes=_attributes(candidate, machine),
        masked_bytes=masked_bytes_of(machine.features),
    )
    program = print_candidate(candidate, emitter, machine.width)
    layout = Layout.of(program, workload)
    given = _arguments(workload)
    first = len(given)
    packs, packed, sizes, taken = [], [], [], {argument.name for argument in given}
    for one in layout.packed:
        made, constant = [], given[one.position]
        for number in one.scratch:
            own = _unique(f"packed_{constant.name}", taken)
            argument = Argument(own, "", (layout.scratch[number].bytes(1),), True)
            made.append((argument, first + number))
            sizes.append(Size(f"{name}_{own}_bytes", argument.shape[0]))
        memories, places = zip(*made, strict=True)
        call = f"{name}_pack{memories[0].name.removeprefix('packed')}"
        packs.append(Call(call, one.entry, (constant, *memories), (one.position, *places)))
        packed += made
    memory = layout.memory(first)
    size = Size(f"{name}_scratch_bytes", memory.fixed, memory.each)
    run = Call(
        name,
        "run",
        (*given, *(_read(argument) for argument, _ in packed)),
        (*range(first), *(position for _, position in packed)),
        (memory.parts, size),
    )
    calls = (*packs, run)
    arrays = first + len(layout.scratch)
    text = str(program.text)
    return Variant(
        machine, candidate, arrays, prefix, text, calls, (*sizes, size), layout.uses_tiles
    )


def _attributes(candidate: Candidate, machine: Machine) -> str:
    """Attributes of each function for LLVM: the extensions that it may use, and the processor."""
    found = ""
    if features := _asked_for(candidate, machine):
        wanted = ",".join(f"+{name}" for name in features)
        found = f' "target-features"="{wanted}"'
    if machine.tuned_for != "generic":
        found += f' "tune-cpu"="{machine.tuned_for}"'
    return found


def _read(memory: Argument) -> Argument:
    return Argument(memory.name, memory.dtype, memory.shape, False)


def _arguments(workload: Workload) -> list[Argument]:
    """Inputs and then outputs, by names that C has."""
    tensors, taken = workload.tensors, set[str]()
    outputs = [tensors[name] for name in workload.outputs]
    return [
        Argument(_unique(tensor.name, taken), tensor.dtype, tensor.shape, is_output)
        for group, is_output in ((workload.inputs, False), (outputs, True))
        for tensor in group
    ]


def _unique(text: str, taken: set[str]) -> str:
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    if not name or name[0].isdigit() or name in (*_C_WORDS, *_PARAMETERS):
        name = f"array_{name}"
    while name in taken:
        name += "_"
    taken.add(name)
    return name

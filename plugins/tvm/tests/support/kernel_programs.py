"""CUDA programs of candidates, for threads of this machine; and what they are assembled to."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.cuda_code import cuda_source
from autotune_tvm.emit import module_for
from autotune_tvm.nvcc import read_report
from autotune_tvm.replay import schedule
from cuda_threads import Program, run_all, run_each
from matrix_programs import check, outcome_of
from tvm_lowered import Kernel, lowered_nest

from autotune.backends import BuildRequest
from autotune.ir.workloads import Workload, random_inputs
from autotune.nest import derive_nest
from autotune.sketches import Candidate, Sketch
from autotune.spaces import SketchSpace
from autotune.targets import Target

__all__ = [
    "assembled",
    "check_all",
    "configured",
    "kernels_of",
    "outcomes",
    "program_of",
    "ptx_of",
    "request_of",
    "sketch_named",
    "small_programs",
    "source_of",
    "with_changes",
    "with_steps",
]

_WARPGROUPS = "sm_90a"


def sketch_named(workload: Workload, target: Target, name: str) -> Sketch:
    """The sketch of this name."""
    space = SketchSpace(workload, target, TVMBackend().limits(target))
    return next(sketch for sketch in space.sketches() if sketch.name == name)


def configured(sketch: Sketch, **values: int) -> Candidate:
    """A candidate; ``i_0`` is the parameter ``i.0`` of the sketch's one stage that is tiled."""
    names = {name.partition(".")[2].replace(".", "_"): name for name in sketch.param_names}
    return Candidate.from_config(sketch, {names[name]: value for name, value in values.items()})


def with_steps(
    candidate: Candidate, kind: type, *, operand: str = "", **changes: object
) -> Candidate:
    """The candidate with other fields in all steps of a kind, or in those of an operand."""
    steps = tuple(
        evolve(step, **changes)
        if isinstance(step, kind) and operand in ("", getattr(step, "operand", ""))
        else step
        for step in candidate.sketch.steps
    )
    return evolve(candidate, sketch=evolve(candidate.sketch, steps=steps))


def request_of(candidate: Candidate, target: Target) -> BuildRequest:
    """A request for a candidate alone."""
    return BuildRequest(candidate.sketch.workload, None, candidate, target, threads=1)


def source_of(candidate: Candidate, target: Target) -> str:
    """CUDA source of a candidate."""
    return TVMBackend().cuda_source(request_of(candidate, target))


def kernels_of(candidate: Candidate) -> tuple[Kernel, ...]:
    """Launches of a candidate, as its schedule has them."""
    workload = candidate.sketch.workload
    return lowered_nest(schedule(module_for(workload), candidate, workload).mod).kernels


def program_of(
    candidate: Candidate,
    target: Target,
    most: float = math.inf,
    *,
    rewritten: Callable[[str], str] = str,
) -> Program | None:
    """A candidate for threads of this machine, launched as a device would be told to.

    Args:
        candidate: The candidate.
        target: What it is for.
        most: Threads of all launches; None is returned where there are more.
        rewritten: Makes source for this machine of source for the device.
    """
    if sum(kernel.blocks * kernel.threads for kernel in kernels_of(candidate)) > most:
        return None
    lowered = TVMBackend().lower(request_of(candidate, target)).program
    launches = tuple((math.prod(it.grid), *it.block[:2]) for it in lowered.launches)
    inputs = random_inputs(candidate.sketch.workload, np.random.default_rng(7))
    maps = tuple(launch.maps for launch in lowered.launches)
    source = rewritten(cuda_source(lowered, target))
    return Program(source, launches, derive_nest(candidate.sketch).workload, inputs, maps)


def small_programs(
    candidates: Iterable[Candidate],
    target: Target,
    count: int,
    most: int,
    key: Callable[[Candidate], Hashable],
    *,
    rewritten: Callable[[str], str] = str,
) -> Iterator[Program]:
    """``count`` programs that differ in ``key``, with few enough threads for this machine."""
    seen: set[Hashable] = set()
    for candidate in candidates:
        distinct = key(candidate)
        program = None
        if distinct not in seen:
            program = program_of(candidate, target, most, rewritten=rewritten)
        if program is not None:
            seen.add(distinct)
            yield program
        if len(seen) == count:
            return


def check_all(programs: Sequence[Program], folder: Path, target: Target) -> None:
    """Run programs, and compare each with the reference."""
    for program, found in zip(programs, run_all(programs, folder), strict=True):
        check(program, found, target)


def with_changes(
    program: Program, changes: Iterable[tuple[str, str, object]], beside: str = ""
) -> Iterator[Program]:
    """A program for each change: its kernels with ``new`` for ``old``, whatever the blanks.

    Args:
        program: The program.
        changes: Of each ``old``, ``new``, and what is no matter here.
        beside: Functions that what is new may call.
    """
    functions, kernel = program.source.split('extern "C"', 1)
    for old, new, _ in changes:
        found = re.compile(r"\s+".join(map(re.escape, old.split())))
        changed, count = found.subn(new, kernel)
        assert count, old
        yield evolve(program, source=f'{functions}{beside}\nextern "C"{changed}')


def outcomes(programs: Sequence[Program], folder: Path, target: Target) -> list[int | str]:
    """The outcome of each program, run in a process of its own."""
    results = run_each(programs, folder)
    return [outcome_of(it, result, target) for it, result in zip(programs, results, strict=True)]


def ptx_of(source: str, architecture: str, folder: Path) -> str:
    """PTX of CUDA source; it keeps nothing in memory of a thread alone."""
    code, assembly = folder / "kernel.cu", folder / "kernel.ptx"
    code.write_text(source)
    command = ["nvcc", "-ptx", f"-arch={architecture}", "-w", "-o", str(assembly), str(code)]
    subprocess.run(command, check=True, capture_output=True)
    text = assembly.read_text()
    assert ".local" not in text
    return text


def assembled(candidate: Candidate, target: Target, folder: Path) -> str:
    """The PTX of a candidate for warpgroups: nothing is spilled, no products are serialised."""
    text = ptx_of(source_of(candidate, target), _WARPGROUPS, folder)
    reporting = ["nvcc", "-cubin", f"-arch={_WARPGROUPS}", "-Xptxas", "-v"]
    command = [*reporting, "-o", str(folder / "kernel.cubin"), str(folder / "kernel.ptx")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    report = done.stderr + done.stdout
    assert "GMMA" not in report.upper()
    kernels = read_report(report)
    assert kernels
    for kernel in kernels:
        assert kernel.stack_bytes == kernel.spill_loads == 0
    return text

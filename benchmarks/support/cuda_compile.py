"""Candidates of GPU sketches as CUDA source and cubins, printed and by TVM, without a device.

Each candidate is printed from its nest (backend ``cuda``), and written by TVM where the plugin for
it is installed; either source becomes a cubin for every architecture asked for, by NVRTC or nvcc.
What the assembler reports of both, and the instructions of their PTX, are held against each other.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from typing import Any

import numpy as np
from cuda_candidates import TARGET, layer_norm

from autotune.backends import BuildFailed, BuildRequest, find_cuda_compiler, read_report
from autotune.errors import AutotuneError
from autotune.ir.workloads import Workload, builders
from autotune.plugins.parts import create_part
from autotune.sketches import Candidate, Sketch, WarpTensorize
from autotune.sketches.intrinsics import find_intrinsic
from autotune.spaces import SketchSpace
from autotune.targets import Target
from support.bars import Bar, geometric_mean

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100")
CANDIDATES, QUICK_CANDIDATES = 48, 3
OURS, THEIRS = "cuda", "tvm"
# Beside TVM, all candidates together: sources a second, and the time of source and cubin.
FASTER, SHARE = 10.0, 0.7
# Up to this ratio a number counts as equal.
NEAR = 1.1

WORKLOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemm1024": ("gemm", {"m": 1024, "n": 1024, "k": 1024}),
    "gemm4096": ("gemm", {"m": 4096, "n": 4096, "k": 1024}),
    "dense128": ("dense", {"m": 128, "n": 768, "k": 3072, "bias": 1, "relu": 1}),
    "gemv4096": ("gemm", {"m": 1, "n": 4096, "k": 4096}),
    "bmm": ("batch_matmul", {"b": 12, "m": 128, "n": 128, "k": 64}),
    "conv14": ("conv2d", {"h": 14, "w": 14, "ci": 256, "co": 256, "pad": 1}),
    "conv56": ("conv2d", {"h": 56, "w": 56, "ci": 64, "co": 64, "pad": 1}),
    "dw112": ("depthwise_conv2d", {"h": 112, "w": 112, "c": 32, "pad": 1}),
    "softmax512x4096": ("softmax", {"m": 512, "n": 4096}),
    "softmax4096x1024": ("softmax", {"m": 4096, "n": 1024}),
    "elementwise4096": ("elementwise", {"m": 4096, "n": 4096}),
    "gemm1024-half": ("gemm", {"m": 1024, "n": 1024, "k": 1024, "dtype": "float16"}),
    "dense128-half": ("dense", {"m": 128, "n": 768, "k": 3072, "dtype": "bfloat16"}),
    "gemm1000-half": ("gemm", {"m": 1000, "n": 1000, "k": 1000, "dtype": "float16"}),
    "gemm100-int8": ("gemm", {"m": 100, "n": 100, "k": 100, "dtype": "int8"}),
    "conv14-half": (
        "conv2d",
        {"h": 14, "w": 14, "ci": 256, "co": 256, "pad": 1, "dtype": "float16"},
    ),
    "conv112-half": (
        "conv2d",
        {"h": 224, "w": 224, "ci": 3, "co": 64, "kh": 7, "kw": 7, "stride": 2, "pad": 3}
        | {"bias": 1, "relu": 1, "dtype": "bfloat16"},
    ),
    "bmm-int8": ("batch_matmul", {"b": 12, "m": 128, "n": 128, "k": 64, "dtype": "int8"}),
}


@dataclass(frozen=True)
class Job:
    """A candidate to compile.

    Attributes:
        case: Its workload's name here.
        candidate: The candidate.
        architectures: What to compile its source for.
        backends: Whose source: ours, and TVM's where it is installed.
    """

    case: str
    candidate: Candidate
    architectures: tuple[str, ...]
    backends: tuple[str, ...]

    @property
    def sketch(self) -> str:
        """``gemm1024 shared``."""
        return f"{self.case} {self.candidate.sketch.name}"


@dataclass(frozen=True)
class Kernels:
    """Kernels of a source for one architecture; the most that one of them has.

    Attributes:
        seconds: Of the processor, to compile them.
        registers: Of a thread.
        stack: Bytes of a thread outside of registers: arrays that got none, and what is spilled.
        spilled: Bytes that stores of spilled registers write.
        instructions: Of PTX, of all kernels together.
    """

    seconds: float
    registers: int
    stack: int
    spilled: int
    instructions: int


@dataclass(frozen=True)
class Source:
    """Program that a backend made of a candidate.

    Attributes:
        seconds: Of the processor, to write it.
        kernels: By architecture, without those that failed.
        failures: Why there is no source, or no kernels for an architecture.
    """

    seconds: float
    kernels: Mapping[str, Kernels] = field(default_factory=dict)
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compiled:
    """The sources of a candidate, by backend.

    Attributes:
        sketch: Of the candidate.
        sources: By backend.
    """

    sketch: str
    sources: Mapping[str, Source]

    @property
    def pairs(self) -> Iterator[tuple[Kernels, Kernels]]:
        """Kernels of ours and of TVM, where both compile."""
        if THEIRS in self.sources:
            ours, theirs = (self.sources[name].kernels for name in (OURS, THEIRS))
            yield from ((ours[it], theirs[it]) for it in ours if it in theirs)


def installed() -> tuple[str, ...]:
    """The backends whose sources are compared."""
    try:
        create_part("backend", THEIRS)
    except AutotuneError:
        return (OURS,)
    return OURS, THEIRS


def find_compiler() -> str | None:
    """The compiler of CUDA source; None where there is none."""
    try:
        return find_cuda_compiler().described
    except AutotuneError as error:
        print(f"nothing is compiled: {error}")
        return None


def compile_all(quick: bool, processes: int | None = None) -> list[Compiled]:
    """Compile the jobs of all workloads in processes, and print each sketch as it is done."""
    jobs = jobs_of(QUICK_CANDIDATES if quick else CANDIDATES, installed())
    cores = processes or len(os.sched_getaffinity(0))
    found: list[Compiled] = []
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        for done in pool.map(compiled, jobs):
            if found and done.sketch != found[-1].sketch:
                print_sketch([it for it in found if it.sketch == found[-1].sketch])
            found.append(done)
    print_sketch([it for it in found if it.sketch == found[-1].sketch])
    return found


def jobs_of(count: int, backends: tuple[str, ...]) -> list[Job]:
    """The jobs of ``count`` candidates of every sketch."""
    return [
        Job(case, candidate, architectures_of(candidate.sketch), backends)
        for case, workload in workloads(backends)
        for candidate in candidates_of(workload, TARGET, count)
    ]


def candidates_of(workload: Workload, target: Target, count: int) -> list[Candidate]:
    """``count`` candidates of every sketch, drawn uniformly, or as many as it has."""
    space = SketchSpace(workload, target, create_part("backend", OURS).limits(target))
    found = []
    for sketch in space.sketches():
        rows = np.unique(space.feasible_set(sketch).uniform(4 * count, 1), axis=0)
        for row in np.random.default_rng(0).permutation(rows)[:count]:
            found.append(Candidate(sketch, tuple(int(value) for value in row)))
    return found


def architectures_of(sketch: Sketch) -> tuple[str, ...]:
    """Architectures that have the matrix instructions of a sketch."""
    steps = [step for step in sketch.core_steps if isinstance(step, WarpTensorize)]
    calls = [find_intrinsic(step.intrinsic) for step in steps]
    return tuple(it for it in ARCHITECTURES if all(call.belongs_to(it) for call in calls))


def workloads(backends: tuple[str, ...]) -> Iterator[tuple[str, Workload]]:
    """The workloads by name; normalisation is read from programs of TVM."""
    for name, (builder, parameters) in WORKLOADS.items():
        yield name, getattr(builders, builder)(**parameters)
    if THEIRS in backends:
        backend = create_part("backend", THEIRS)
        for name, centred in (("layernorm4096x1024", True), ("layernorm2_4096x1024", False)):
            yield name, backend.import_program(layer_norm(centred)).workload


def compiled(job: Job) -> Compiled:
    """Compile one candidate; runs in a process of its own kind."""
    return Compiled(
        job.sketch,
        {it: made(it, job.candidate, job.architectures) for it in job.backends},
    )


def made(backend: str, candidate: Candidate, architectures: Sequence[str]) -> Source:
    """Compile what a backend makes of a candidate."""
    write = writer(backend)
    began = processor_seconds()
    try:
        source = write(candidate)
    except (AutotuneError, BuildFailed) as error:
        return Source(processor_seconds() - began, failures=(f"no source: {error}",))
    seconds = processor_seconds() - began
    kernels, failures = {}, []
    for architecture in architectures:
        try:
            kernels[architecture] = kernels_of(source, architecture)
        except BuildFailed as error:
            failures.append(f"{architecture}: {error}")
    return Source(seconds, kernels, tuple(failures))


@lru_cache(maxsize=2)
def writer(name: str) -> Callable[[Candidate], str]:
    """A backend's way to source; what it takes to begin is no part of a candidate's seconds."""
    backend: Any = create_part("backend", name)
    write = backend.show if name == OURS else backend.cuda_source

    def written(candidate: Candidate) -> str:
        workload = candidate.sketch.workload
        return str(write(BuildRequest(workload, None, candidate, TARGET, threads=1)))

    space = SketchSpace(builders.gemm(m=32, n=32, k=32), TARGET, backend.limits(TARGET))
    (first,) = space.sample(1, np.random.default_rng(0))
    kernels_of(written(first), ARCHITECTURES[0])
    gc.freeze()  # As in workers: a search for garbage looks at what is made afterwards only.
    return written


def processor_seconds() -> float:
    """Of this process and of its children that ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def kernels_of(source: str, architecture: str) -> Kernels:
    """Compile source.

    Raises:
        BuildFailed: it is rejected.
    """
    explain = find_cuda_compiler().explain
    assert explain is not None
    began = processor_seconds()
    ptx, report = explain(source, architecture)
    seconds = processor_seconds() - began
    known = read_report(report)
    return Kernels(
        seconds,
        max(it.registers for it in known),
        max(it.stack_bytes for it in known),
        max(it.spill_stores for it in known),
        sum(instructions_of(ptx).values()),
    )


def instructions_of(ptx: str) -> Counter[str]:
    """Instructions of PTX by name, those of inline assembly included."""
    found: Counter[str] = Counter()
    for statement in re.split(r"[;{}\n]", re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx)):
        name = re.sub(r"^@!?%\w+\s+", "", statement.strip()).partition(" ")[0].split("\t")[0]
        if re.fullmatch(r"[a-z][\w.:]*[\w.]", name):
            found[name] += 1
    return found


def compared(found: Sequence[Compiled]) -> dict[str, Counter[str]]:
    """Count kernels that have better, equal and worse numbers than TVM's.

    Registers count as better where TVM leaves results outside of them and ours do not.
    """
    registers, instructions = Counter[str](), Counter[str]()
    for ours, theirs in (pair for it in found for pair in it.pairs):
        fits = ours.stack < theirs.stack
        registers["better" if fits else judged(ours.registers / theirs.registers)] += 1
        instructions[judged(ours.instructions / theirs.instructions)] += 1
    return {"registers": registers, "instructions": instructions}


def judged(ratio: float) -> str:
    """Name a ratio to a number of TVM's."""
    return "better" if ratio < 1 else "equal" if ratio <= NEAR else "worse"


def print_sketch(done: Sequence[Compiled]) -> None:
    """A line for a sketch, and one for each kind of failure of it."""
    failures = [it for done_ in done for it in done_.sources[OURS].failures]
    failed = sum(bool(it.sources[OURS].failures) for it in done)
    told = f"{failed} failed" if failed else "all compile"
    print(f"{done[0].sketch:42} {len(done):3} candidates, {told}{table(done)}", flush=True)
    for failure in dict.fromkeys(failures):
        print(f"    {failures.count(failure)} times {failure}"[:400], flush=True)


def table(found: Sequence[Compiled]) -> str:
    """Kernels that are better, equal and worse than TVM's, by what is counted."""
    if not any(True for it in found for _ in it.pairs):
        return ""
    counts = compared(found)
    rows = (
        f"{name} {'/'.join(str(counts[name][it]) for it in ('better', 'equal', 'worse'))}"
        for name in counts
    )
    return f"; {', '.join(rows)}"


def rates_of(found: Sequence[Compiled]) -> dict[str, Any]:
    """Sources and cubins a second and core of each backend, and ours beside TVM's."""
    rates: dict[str, Any] = {}
    for name in (OURS, THEIRS):
        sources = [it.sources[name] for it in found if name in it.sources]
        made = [kernels.seconds for it in sources for kernels in it.kernels.values()]
        rates[name] = {
            "sources": len(sources) / sum(it.seconds for it in sources) if sources else None,
            "cubins": len(made) / sum(made) if made else None,
        }
    both = [it.sources for it in found if THEIRS in it.sources]
    both = [
        it
        for it in both
        if it[OURS].kernels and it[OURS].kernels.keys() == it[THEIRS].kernels.keys()
    ]
    if both:
        written = [sum(it[name].seconds for it in both) for name in (OURS, THEIRS)]
        # A build is one source and one cubin.
        built = [
            sum(
                it[name].seconds
                + sum(own.seconds for own in it[name].kernels.values()) / len(it[name].kernels)
                for it in both
            )
            for name in (OURS, THEIRS)
        ]
        pairs = [pair for it in found for pair in it.pairs]
        rates |= {
            "faster": written[1] / written[0],
            "share": built[0] / built[1],
            "spilled": sum(ours.spilled > theirs.spilled for ours, theirs in pairs),
            "registers": geometric_mean([a.registers / b.registers for a, b in pairs]),
            "instructions": geometric_mean([a.instructions / b.instructions for a, b in pairs]),
            "compared": compared(found),
        }
    return rates


def compile_bars(found: Sequence[Compiled], compiler: str | None) -> list[Bar]:
    """Promises of candidates without a device."""
    rates, note = rates_of(found), compiler or "there is no compiler"
    failed = float(sum(bool(it.sources[OURS].failures) for it in found)) if found else None
    alone = bool(found) and "faster" not in rates
    theirs = "" if not alone else "TVM is not installed"

    def beside(name: str, key: str, wanted: float, at_most: bool = True) -> Bar:
        value = rates.get(key)
        return Bar(name, value, wanted, at_most=at_most, note=theirs, not_asked=alone)

    return [
        Bar("printed candidates that do not compile", failed, 0, at_most=True, note=note),
        beside("kernels that spill more than TVM's", "spilled", 0),
        beside("sources a second, of TVM's", "faster", FASTER, at_most=False),
        beside("time of source and cubin, of TVM's", "share", SHARE),
        beside("registers, of TVM's, geometric mean", "registers", NEAR),
        beside("PTX instructions, of TVM's, geometric mean", "instructions", NEAR),
    ]


if __name__ == "__main__":
    sys.exit("this is a part of cuda.py")

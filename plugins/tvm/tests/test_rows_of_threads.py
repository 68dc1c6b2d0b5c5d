"""Blocks of several rows, each with threads of its own along the second dimension of a block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.nvcc import kernel_resources
from autotune_tvm.passes import sync_rows
from cuda_threads import Program, run_all
from kernel_programs import kernels_of, program_of, request_of, source_of
from matrix_programs import check
from row_norms import layer_norm, scaled_rows
from thinning import thinned

from autotune.ir.workloads import Workload, softmax
from autotune.nest import nest_tape
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import preset

TARGET = preset("a100")
WORKLOADS = (softmax(m=12, n=96), scaled_rows(3, 4, 40), layer_norm(m=8, n=70))


def candidates(workload: Workload) -> Iterator[tuple[int, int, Candidate]]:
    """A candidate of every sketch for some rows of a block and threads of a row, with these."""
    space = SketchSpace(workload, TARGET, TVMBackend().limits(TARGET))
    for sketch in space.sketches():
        place, threads = (
            next(at for at, name in enumerate(sketch.param_names) if name.endswith(ending))
            for ending in (".i.1", ".threads")
        )
        drawn = space.feasible_set(sketch).uniform(400, 3).tolist()
        for wanted in ((1, 32), (1, 64), (2, 64), (4, 32)):
            values = next(row for row in drawn if (row[place], row[threads]) == wanted)
            yield *wanted, Candidate(sketch, tuple(values))


def several(workload: Workload) -> Iterator[tuple[int, int, Candidate]]:
    return (found for found in candidates(workload) if found[0] > 1)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.name)
def test_a_block_has_rows_times_threads(workload: Workload) -> None:
    for rows, threads, candidate in several(workload):
        (kernel,) = kernels_of(candidate)
        assert kernel.launch[1:] == (threads, rows)
        (launch,) = TVMBackend().lower(request_of(candidate, TARGET)).program.launches
        assert (*launch.grid, *launch.block) == (kernel.blocks, 1, 1, threads, rows, 1)
        tape = nest_tape(candidate.sketch).tape
        values = tape.evaluate(np.array([candidate.values], dtype=np.int64))[0]
        last = workload.outputs[0]
        for name, found in (
            (f"{last}/grid", kernel.blocks),
            (f"{last}/threads", kernel.threads),
            ("shared_bytes", kernel.shared_bytes),
        ):
            assert values[tape.output_index[name]] == found


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.name)
def test_rows_wait_as_often_together_as_alone(workload: Workload) -> None:
    waits: dict[tuple[str, int], set[int]] = {}
    for _, threads, candidate in candidates(workload):
        count = source_of(candidate, TARGET).count("__syncthreads();")
        waits.setdefault((candidate.sketch.name, threads), set()).add(count)
    assert all(len(counts) == 1 for counts in waits.values())


def programs(workload: Workload) -> Iterator[Program]:
    for _, _, candidate in several(workload):
        program = program_of(candidate, TARGET)
        assert program is not None
        yield program


def test_kernels_compute_the_reference_with_barriers_of_rows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them the others of a row read what its first thread has yet to store."""
    found = [it for at, each in enumerate(WORKLOADS) for it in list(programs(each))[at % 2 :: 2]]
    monkeypatch.setattr(sync_rows, "sync_rows", lambda module: module)
    found.append(next(programs(WORKLOADS[0])))
    *right, wrong = run_all(found, tmp_path)
    for program, outputs in zip(found, right, strict=False):
        check(program, outputs, TARGET)
    with pytest.raises(AssertionError):
        check(found[-1], wrong, TARGET)


@pytest.mark.slow
@pytest.mark.needs("nvcc")
@pytest.mark.parametrize("architecture", thinned(["sm_90a", "sm_80", "sm_100"], 3, 9))
def test_they_compile(architecture: str) -> None:
    rows, threads, candidate = max(several(WORKLOADS[0]), key=lambda found: found[0])
    source = source_of(candidate, TARGET)
    assert re.search(rf"__launch_bounds__\({rows * threads}[,)]", source)
    (resources,) = kernel_resources(source, architecture)
    assert resources.spill_stores == resources.spill_loads == 0

"""Printed kernels, for threads of the machine."""

from __future__ import annotations

import numpy as np
from cuda_threads import Array, Program
from warpgroup_assembly import on_cpus

from autotune.backends import TensorMap
from autotune.ir.workloads import Workload, random_inputs, reference_outputs
from autotune.lower.kernels import PrintedKernels
from autotune.nest import derive_nest
from autotune.sketches import Candidate


def program_of(candidate: Candidate, printed: PrintedKernels) -> Program:
    """The kernels of a candidate with inputs."""
    workload = derive_nest(candidate.sketch).workload
    launches = tuple((it.grid[0], it.block[0], it.block[1]) for it in printed.kernels)
    inputs = random_inputs(candidate.sketch.workload, np.random.default_rng(7))
    maps = tuple(
        tuple(TensorMap(box.buffer, box.dtype, box.shape, box.box) for box in it.boxes)
        for it in printed.kernels
    )
    return Program(on_cpus(printed.source), launches, workload, inputs, maps)


def is_right(workload: Workload, program: Program, found: dict[str, Array]) -> bool:
    """Tell whether outputs are those of the reference."""
    expected = reference_outputs(workload, dict(program.inputs))
    for name, array in expected.items():
        kind = workload.tensors[name].element
        near = max(2e-5, 4 * kind.eps) if kind.is_float else 0.0
        ours, theirs = (kind.numbers(it).astype(np.float64) for it in (found[name], array))
        if not np.allclose(ours, theirs, rtol=near, atol=near):
            return False
    return True

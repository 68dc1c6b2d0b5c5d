"""Fetches ahead of time: which sketches have them, their memory, and what the draft says."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Workload, conv2d, dense, gemm
from autotune.models.pruning.psa_gpu import GpuScorer
from autotune.models.pruning.psa_symbols import corrected_symbols
from autotune.nest import derive_nest, nest_tape
from autotune.sketches import STEP_TYPES, Candidate, PipelineFetches, Sketch
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import most_shared_memory, preset

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1020, 512, "test")
A100 = preset("a100")
LARGE = gemm(m=1024, n=1024, k=1024, dtype="float16")


def tensor_sketch(workload: Workload, limits: ScheduleLimits = LIMITS) -> Sketch:
    sketches = SketchSpace(workload, A100, limits).sketches()
    return next(sketch for sketch in sketches if sketch.name == "tensor-cores")


def depths_of(sketch: Sketch) -> tuple[int, ...]:
    """Stages to choose from; none where everything is waited for."""
    found = [param.values for param in sketch.params if param.name.endswith(".stages")]
    steps = [step for step in sketch.steps if isinstance(step, PipelineFetches)]
    assert len(found) == len(steps)
    return tuple(found[0] or ()) if found else ()


@pytest.mark.parametrize(
    ("workload", "depths"),
    [
        (LARGE, (1, 2, 3, 4)),
        (gemm(m=64, n=64, k=48, dtype="float16"), (1, 2, 3)),
        (gemm(m=64, n=64, k=16, dtype="float16"), ()),
        (gemm(m=50, n=44, k=52, dtype="float16"), (1, 2, 3, 4)),
        (gemm(m=51, n=45, k=53, dtype="float16"), ()),
        (gemm(m=64, n=64, k=128, dtype="int8"), ()),
        (conv2d(h=8, w=8, ci=16, co=16, pad=1, dtype="float16"), (1, 2, 3, 4)),
        (conv2d(h=8, w=8, ci=3, co=16, pad=1, dtype="float16"), ()),
    ],
    ids=("large", "three", "one", "padded", "odd", "turned", "windows", "three channels"),
)
def test_what_is_moved_in_vectors_is_fetched_ahead(
    workload: Workload, depths: tuple[int, ...]
) -> None:
    assert depths_of(tensor_sketch(workload)) == depths


def test_without_the_step_everything_is_waited_for() -> None:
    lacking = evolve(LIMITS, steps=LIMITS.steps - {"pipeline_fetches"})
    assert depths_of(tensor_sketch(LARGE, lacking)) == ()
    plain = [it for it in SketchSpace(LARGE, A100, LIMITS).sketches() if it.name == "shared"]
    assert depths_of(plain[0]) == ()


def test_every_stage_is_memory_of_a_block() -> None:
    sketch = tensor_sketch(LARGE)
    space, tape = SketchSpace(LARGE, A100, LIMITS), nest_tape(sketch).tape
    rows = space.feasible_set(sketch).uniform(200, 0)
    column = sketch.param_names.index("C.stages")
    assert set(rows[:, column]) == {1, 2, 3, 4}
    alone = rows.copy()
    alone[:, column] = 1
    place = tape.output_index["shared_bytes"]
    held, of_one = (tape.evaluate(it)[:, place] for it in (rows, alone))
    np.testing.assert_array_equal(held, of_one * rows[:, column])
    assert A100.shared_memory_bytes < held.max() <= most_shared_memory(A100)
    rounds = rows[:, sketch.param_names.index("C.k.0")]
    assert np.all(rows[:, column] <= rounds)


def config_of(**changes: int) -> dict[str, int]:
    tiles = {"i.0": 16, "i.1": 2, "i.2": 2, "j.0": 16, "j.1": 2, "j.2": 4, "k.0": 32, "k.1": 2}
    config = {f"C.{name}": value for name, value in tiles.items()}
    config |= {"C.A.lanes": 8, "C.B.lanes": 8, "C.A.pad": 8, "C.B.pad": 8, "C.unroll": 0}
    return config | {f"C.{name}": value for name, value in changes.items()}


def test_stages_that_overflow_shared_memory_are_infeasible() -> None:
    """Three of 52 KiB fit the 163 KiB that a block may ask for, four do not."""
    sketch = tensor_sketch(LARGE)
    tiles = {"C.i.2": 4, "C.i.0": 8, "C.k.1": 8, "C.k.0": 8}
    configs = [config_of(stages=depth) | tiles for depth in (3, 4)]
    matrix = np.array([Candidate.from_config(sketch, config).values for config in configs])
    shared = [buffer for buffer in derive_nest(sketch).buffers if buffer.scope == "shared"]
    sizes = [sum(int(evaluate(buffer.bytes, config)) for buffer in shared) for config in configs]
    assert sizes[0] <= most_shared_memory(A100) == 163 * 1024 < sizes[1]
    assert SketchSpace(LARGE, A100, LIMITS).feasible_set(sketch).contains(matrix).tolist() == [
        True,
        False,
    ]
    for formula in ("published", "corrected"):
        first, second = GpuScorer(A100, formula).score(sketch, matrix)
        assert np.isfinite(first) and second == -np.inf


def test_the_draft_expects_copies_to_be_hidden_behind_products() -> None:
    """With as many blocks resident, stages only hide; the published formula does not see them."""
    sketch = tensor_sketch(LARGE)
    rows = [Candidate.from_config(sketch, config_of(stages=depth)).values for depth in (1, 2, 3)]
    one, two, three = GpuScorer(A100).score(sketch, np.array(rows))
    assert one < two <= three
    same = GpuScorer(A100, "published").score(sketch, np.array(rows))
    assert len(set(same)) == 1


def test_an_asynchronous_copy_is_one_instruction() -> None:
    """64 x 32 elements of either factor are two vectors of each of the 128 threads, 32 times."""
    sketch = tensor_sketch(LARGE)
    names = ("other instructions of a thread", "vectors that a thread copies")
    ((others, copied),) = corrected_symbols(derive_nest(sketch), A100, names)
    waiting, ahead = (int(evaluate(others, config_of(stages=depth))) for depth in (1, 2))
    assert int(evaluate(copied, config_of(stages=2))) == 2 * 2 * 32
    assert waiting - ahead == 2 * 2 * 32


def test_a_pipeline_of_nothing_is_refused() -> None:
    sketch = tensor_sketch(dense(m=64, n=96, k=128, dtype="float16"))
    step = PipelineFetches("Y", "i.0", const(2))
    with pytest.raises(InvalidValueError, match=r"no step fetches anything inside 'i\.0'"):
        derive_nest(evolve(sketch, steps=(*sketch.steps, step)))

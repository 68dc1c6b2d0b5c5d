"""GPU sketches: their structure, and that their constraints hold what the target allows."""

from __future__ import annotations

import attrs
import pytest
from rule_sketches import LIMITS

from autotune.errors import InvalidValueError
from autotune.ir.expressions import var
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Workload, conv2d, dense, gemm, softmax
from autotune.nest import derive_nest
from autotune.sketches import AtMost, Bind, OneOf, Sketch
from autotune.spaces import BUILT_IN_RULES
from autotune.spaces.rules import generate_sketches
from autotune.spaces.rules.gpu_levels import block_threads, thread_counts, vector_widths
from autotune.spaces.rules.gpu_split_reduction import chunk_counts
from autotune.targets import Target, preset

TARGET = preset("a100")


def sketches(workload: Workload, target: Target = TARGET) -> dict[str, Sketch]:
    return {
        s.name: s for s in generate_sketches(workload, target, LIMITS, BUILT_IN_RULES).sketches
    }


def steps_of(sketch: Sketch, kind: type) -> list:
    return [step for step in sketch.steps if isinstance(step, kind)]


@pytest.mark.parametrize(
    ("workload", "counts"),
    [
        (gemm(m=1024, n=1024, k=8192), ()),  # tiles enough
        (gemm(m=64, n=64, k=508), ()),  # too few terms for four parts
        (gemm(m=64, n=64, k=512), (4,)),
        (gemm(m=64, n=64, k=514), ()),  # no divisors
        (gemm(m=64, n=64, k=8192), (16, 64)),
        (gemm(m=256, n=768, k=8192), (8,)),
        (dense(m=128, n=768, k=3072), (4, 16)),
        (conv2d(h=14, w=14, ci=256, co=256, pad=1), (4, 16)),
    ],
)
def test_numbers_of_parts(workload: Workload, counts: tuple[int, ...]) -> None:
    stage = next(stage for stage in workload.stages if stage.combiner is not None)
    assert chunk_counts(stage, preset("h100")) == counts


def test_several_short_rows_share_a_block() -> None:
    sketch = sketches(softmax(m=96, n=128))["row-fusion-kept"]
    bound = [(step.stage, step.loops, step.role) for step in steps_of(sketch, Bind)]
    assert [it for it in bound if it[2] != "thread"] == [
        ("Y", ("i.0",), "block"),
        ("Y", ("i.1",), "thread_y"),
        *((stage, ("i.0",), "thread_y") for stage in "SEM"),
    ]
    config = {"Y.i.0": 24, "Y.i.1": 4, "Y.threads": 32, "Y.lanes": 1, "E.lanes": 1, "Y.unroll": 0}
    nest = derive_nest(sketch)
    shapes = {
        buffer.name: [evaluate(extent, config) for extent in buffer.shape]
        for buffer in nest.buffers
    }
    assert shapes == {"M": [4], "E": [4, 128], "S": [4]}
    assert {buffer.scope for buffer in nest.buffers} == {"shared"}
    for statement in nest.statements:
        found = [loop.extent for loop in statement.loops if loop.kind == "thread"]
        # Partial results of all threads of a row begin with one value.
        wanted = [4] if statement.role == "init" else [4, 32]
        assert [evaluate(extent, config) for extent in found] == wanted
    (limit,) = (it for it in sketch.constraints if isinstance(it, AtMost))
    assert (evaluate(limit.expression, config), limit.limit, limit.hard) == (128, 1024, True)


@pytest.mark.parametrize(
    ("workload", "name", "scopes"),
    [
        (
            gemm(m=512, n=256, k=128),
            "shared",
            {"A.fetch": "shared", "B.fetch": "shared", "C.tile": "local"},
        ),
        (
            dense(m=128, n=768, k=3072),
            "split-reduction-wide",
            {
                "X.fetch": "shared",
                "W.fetch": "shared",
                "Y_partial.tile": "local",
                "Y_partial": "global",
                "Y.tile": "local",
            },
        ),
        # The padding of a convolution is computed while it is fetched.
        (
            conv2d(h=16, w=16, ci=4, co=32, pad=1),
            "shared",
            {"P.fetch": "shared", "W.fetch": "shared", "Y.tile": "local"},
        ),
        (conv2d(h=16, w=16, ci=4, co=32, pad=1), "direct", {"Y.tile": "local"}),
        (softmax(m=64, n=1000), "row-fusion-kept", dict.fromkeys("MES", "shared")),
        # What a block cannot keep is computed again.
        (softmax(m=8, n=50000), "row-fusion-recomputed", dict.fromkeys("MS", "shared")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_where_buffers_are(workload: Workload, name: str, scopes: dict[str, str]) -> None:
    sketch = sketches(workload, preset("h100"))[name]
    nest = derive_nest(sketch)
    assert {buffer.name: buffer.scope for buffer in nest.buffers} == scopes
    limited = workload.name != "softmax" and name == "shared"
    limits = {statement.unroll_limit for statement in nest.statements}
    assert not limited or limits == {var(f"{workload.stages[-1].name}.unroll")}


def test_whole_warps_are_asked_for_where_there_are_any() -> None:
    def asked(workload: Workload) -> bool:
        constraints = next(iter(sketches(workload).values())).constraints
        return any(isinstance(c, OneOf) and c.source == "whole warps" for c in constraints)

    assert asked(gemm(m=4, n=8, k=8))
    assert asked(gemm(m=4, n=7, k=8))  # padded
    assert not asked(gemm(m=1, n=7, k=8))


def test_numbers_of_threads() -> None:
    assert block_threads(1, TARGET) == (32,)
    assert block_threads(65, TARGET) == (32, 64, 128)
    assert block_threads(10**6, TARGET)[-1] == 1024
    assert thread_counts([(4,), (3,)], TARGET) == (1, 2, 3, 4, 6, 12)
    assert thread_counts([(3, 4)], TARGET) == (1, 2, 3, 4)
    assert max(thread_counts([(1 << 10,), (1 << 10,)], TARGET)) == 1024


def test_vectors_fit_one_access() -> None:
    assert vector_widths(12, "float32", TARGET) == (1, 2, 4)
    assert vector_widths(12, "float64", TARGET) == (1, 2)
    assert vector_widths(64, "int8", TARGET) == (1, 2, 4, 8, 16)
    assert vector_widths(7, "float32", TARGET) == (1,)


def test_a_target_that_does_not_say_its_limits_is_refused() -> None:
    vague = attrs.evolve(TARGET, name="mine", shared_memory_bytes=0, warp_size=0)
    with pytest.raises(InvalidValueError, match="mine.*shared_memory_bytes, warp_size"):
        sketches(gemm(m=64, n=64, k=64), vague)


def test_shared_memory_has_room_for_alignment() -> None:
    constraints = sketches(gemm(m=512, n=512, k=512))["shared"].constraints
    shared = next(c for c in constraints if "shared memory" in getattr(c, "source", ""))
    assert isinstance(shared, AtMost)
    assert shared.limit == TARGET.shared_memory_bytes - 2 * 63

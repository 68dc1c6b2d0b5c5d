"""The sketches of common workloads, and what has none."""

from __future__ import annotations

import pytest
from indexed_workloads import embedding_bag, gathered_product
from rule_sketches import (
    COLUMNS,
    EVERY_PACKING,
    LIMITS,
    NOT_BLOCKED,
    ROW_FUSIONS,
    TARGET,
    sketches,
)
from written import written

from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.sketches import Pack, Sketch
from autotune.spaces.rules import (
    InlineRule,
    SketchDraft,
    generate_sketches,
    replayable_sketches,
)
from autotune.spaces.sketch_space import BUILT_IN_RULES


@pytest.mark.parametrize(
    ("workload", "names"),
    [
        (gemm(m=37, n=53, k=29), EVERY_PACKING),
        (gemm(m=64, n=64, k=64), EVERY_PACKING),
        (gemm(m=37, n=53, k=8), NOT_BLOCKED),  # too little depth to be worth packing
        (gemm(m=1, n=64, k=64), ["direct"]),  # no rows: nothing is used twice
        (batch_matmul(b=2, m=33, n=40, k=50), EVERY_PACKING),
        (dense(m=37, n=48, k=20), EVERY_PACKING[3:]),  # W[n, k] is not contiguous along n
        (conv2d(h=9, w=9, ci=4, co=40, pad=1, bias=1, relu=1), EVERY_PACKING),
        (conv2d(h=9, w=9, ci=4, co=40), EVERY_PACKING),
        (depthwise_conv2d(h=9, w=9, c=19), NOT_BLOCKED),
        (softmax(m=5, n=7), ["row-fusion", "row-fusion-recompute"]),
        (softmax(m=64, n=256), ROW_FUSIONS),
        (elementwise(m=5, n=7), ["plain"]),
    ],
    ids=lambda value: value.name if isinstance(value, Workload) else "",
)
def test_the_default_sketches(workload: Workload, names: list[str]) -> None:
    made = sketches(workload)
    assert [sketch.name for sketch in made] == names
    assert len(made) <= 12


def test_a_reduction_to_a_number_is_split() -> None:
    workload = written("X[32, k]", "Y[; k] += X[0, k]", k=COLUMNS)
    found = {sketch.name for sketch in sketches(workload)}
    assert "split-reduction" in found


def test_a_sum_that_reads_nothing_stays_as_it_is() -> None:
    (sketch,) = sketches(written("", "Y[; i:4] += 1.0"))
    assert sketch.name == "serial" and sketch.steps == ()


def test_no_rule_at_all() -> None:
    with pytest.raises(UnsupportedWorkload, match="stage 'C'; rules: inline$"):
        generate_sketches(gemm(m=2, n=2, k=2), TARGET, LIMITS, (InlineRule(),))


def test_a_single_number_has_a_schedule_without_steps() -> None:
    (sketch,) = sketches(written("X[]", "Y[] = exp(X[()])"))
    assert sketch.steps == () and sketch.params == ()


def test_what_is_read_where_data_says_stays_in_place() -> None:
    assert {it.name for it in sketches(embedding_bag())} == {"direct", "plain-outer", "plain-rows"}
    assert {it.name for it in sketches(gathered_product())} == {"packed-root", "packed-panel"}
    for sketch in (*sketches(embedding_bag()), *sketches(gathered_product())):
        packed = {step.operand for step in sketch.steps if isinstance(step, Pack)}
        assert packed == (set() if sketch.name == "direct" else {"W"})


@pytest.mark.parametrize(
    "workload", [gemm(m=37, n=53, k=29), conv2d(h=9, w=9, ci=4, co=40), softmax(m=64, n=256)]
)
def test_sketches_are_made_when_they_are_asked_for(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished: list[str] = []
    finish = SketchDraft.finished

    def counted(draft: SketchDraft) -> Sketch:
        made = finish(draft)
        finished.append(made.name)
        return made

    monkeypatch.setattr(SketchDraft, "finished", counted)
    one_by_one = replayable_sketches(workload, TARGET, LIMITS, BUILT_IN_RULES)
    first = next(one_by_one)
    assert finished == [first.name]
    whole = generate_sketches(workload, TARGET, LIMITS, BUILT_IN_RULES)
    assert (first, *one_by_one) == whole.sketches

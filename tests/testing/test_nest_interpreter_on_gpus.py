"""GPU nests executed: every sketch computes what the reference computes."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_workloads import DRAWN_WORKLOADS
from rule_sketches import LIMITS
from split_reductions import SPLIT_ACROSS_BLOCKS
from written import written

from autotune.ir.expressions import const
from autotune.ir.workloads import Workload, dense, elementwise, gemm, random_inputs, softmax
from autotune.nest import derive_nest
from autotune.sketches import (
    Accumulate,
    Bind,
    Candidate,
    CooperativeFetch,
    Order,
    Sketch,
    Step,
    Tile,
)
from autotune.spaces import SketchSpace
from autotune.targets import preset
from autotune.testing import nest_interpreter
from autotune.testing.nest_interpreter import run_candidate
from autotune.testing.programs import check_nest

TARGET = preset("a100")
_FEW = st.integers(1, 9)
# Beside those that are walked elsewhere, reductions that threads share.
DRAWN = st.one_of(
    DRAWN_WORKLOADS,
    st.builds(gemm, m=_FEW, n=st.integers(1, 20), k=st.just(64)),
    st.builds(dense, m=_FEW, n=_FEW, k=st.sampled_from([16, 128])),
    st.builds(softmax, m=_FEW, n=st.integers(1, 80) | st.sampled_from([256, 1000])),
    st.builds(elementwise, m=_FEW, n=st.integers(1, 200)),
)


def check(space: SketchSpace, workload: Workload, seed: int, each: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = random_inputs(workload, rng)
    for candidate in space.sample(each * len(space.sketches()), rng):
        check_nest(candidate, inputs, tolerance=1e-6)


@given(DRAWN, st.integers(0, 2**32))
def test_random_workloads_and_candidates(workload: Workload, seed: int) -> None:
    check(SketchSpace(workload, TARGET, LIMITS), workload, seed, 1)


@pytest.mark.parametrize("workload", SPLIT_ACROSS_BLOCKS, ids=lambda it: it.name)
def test_reductions_across_blocks(workload: Workload) -> None:
    space = SketchSpace(workload, TARGET, LIMITS)
    assert any(sketch.name.startswith("split") for sketch in space.sketches())
    check(space, workload, 3, 1)


def test_a_reduction_without_axes() -> None:
    workload = written("X[1, 77]", "S[i:1; k:77] += X[i, k]")
    check(SketchSpace(workload, TARGET, LIMITS), workload, 0, 3)


STEPS: tuple[Step, ...] = (
    Tile("C", "i", tuple(map(const, (2, 2, 2, 1, 1)))),
    Tile("C", "j", tuple(map(const, (1, 1, 2, 3, 2)))),
    Tile("C", "k", tuple(map(const, (2, 3, 1)))),
    Order(
        "C",
        (
            *("i.0", "j.0", "i.1", "j.1", "i.2", "j.2"),
            *("k.0", "k.1", "i.3", "j.3", "k.2", "i.4", "j.4"),
        ),
    ),
    Bind("C", ("i.0", "j.0"), "block"),
    Bind("C", ("i.1", "j.1"), "vthread"),
    Bind("C", ("i.2", "j.2"), "thread"),
    CooperativeFetch("C", "A", "k.0", const(4), const(1)),
    CooperativeFetch("C", "B", "k.0", const(4), const(4)),
    Accumulate("C", "j.2", (const(3), const(2))),
)


MADE = Candidate(Sketch("made", gemm(m=8, n=12, k=6), (), (), STEPS), ())


def test_steps_by_hand() -> None:
    check_nest(MADE, tolerance=1e-6)


def knows_all() -> bool:
    """Tell whether every element of the made candidate's result is known."""
    inputs = random_inputs(MADE.sketch.workload, np.random.default_rng(0))
    return not np.isnan(run_candidate(MADE, inputs)["C"]).any()


@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_a_block_did_not_fetch_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def shortened(sketch: Sketch) -> object:
        nest = derive_nest(sketch)
        statements = tuple(
            attrs.evolve(
                s, loops=(attrs.evolve(s.loops[0]), *s.loops[1:-1], first_only(s.loops[-1]))
            )
            if s.name == "B.fetch"
            else s
            for s in nest.statements
        )
        return attrs.evolve(nest, statements=statements)

    def first_only(loop: object) -> object:
        return attrs.evolve(loop, extent=const(1))

    monkeypatch.setattr(nest_interpreter, "derive_nest", shortened)
    assert not knows_all()


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_thread_does_not_know_what_others_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    def exchanged(sketch: Sketch) -> object:
        """Threads write back the results of other threads."""
        nest = derive_nest(sketch)

        def other(loop: object) -> object:
            return attrs.evolve(loop, parts=loop.parts[::-1]) if loop.kind == "thread" else loop

        statements = tuple(
            attrs.evolve(s, loops=tuple(map(other, s.loops))) if s.role == "write" else s
            for s in nest.statements
        )
        return attrs.evolve(nest, statements=statements)

    monkeypatch.setattr(nest_interpreter, "derive_nest", exchanged)
    assert not knows_all()

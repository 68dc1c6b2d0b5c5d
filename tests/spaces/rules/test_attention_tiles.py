"""Attention in tiles of scores, in one parallel loop that a causal mask may end early."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_sketches import LIMITS, TARGET, check_facts, check_reference, load, of_kind, sketches
from written import written

from autotune.ir.expressions import Binary, Cast, Constant, IndexValue, ScalarExpr, Unary, var
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Workload, attention
from autotune.ir.workloads.inputs import random_inputs
from autotune.ir.workloads.reference import evaluate_body, reference_outputs
from autotune.nest import derive_nest, describe
from autotune.sketches import (
    BoundLoop,
    Candidate,
    FuseConsumer,
    FuseProducer,
    Inline,
    Pack,
    Parallel,
    Sketch,
)
from autotune.spaces import BUILT_IN_RULES, ScheduleLimits, SketchSpace
from autotune.spaces.rules import generate_sketches
from autotune.spaces.rules.attention_tiles import ATTENTION_LABEL, shown_columns
from autotune.spaces.sketch_space import loosen
from autotune.targets import preset
from autotune.testing.nest_interpreter import run_candidate

SCORES = "A[b, i, j] * scale"
BIASED = f"{SCORES} + B[b, i, j]"
CAUSAL = f"{SCORES} if j <= i else unseen"
EXPONENTIALS = "exp(X[b, i, j] - M[b, i])"
EPILOGUE = "T[b:h, i:n, d:w] = tanh(Y[b, i, d])"


def attending(
    h: int = 1,
    n: int = 8,
    w: int = 16,
    m: int = 0,
    *,
    scores: str = SCORES,
    exponentials: str = EXPONENTIALS,
    turned: str = "",
    copies: int = 1,
    group: int = 1,
    computed: bool = False,
    after: str = "",
    **values: float,
) -> Workload:
    """An attention of ``h`` heads: ``n`` queries and ``m`` keys of width ``w``.

    Args:
        h: Heads of queries.
        n: Queries.
        w: Width of a head.
        m: Keys; as many as queries by default.
        scores: The body of the stage ``X``, which may read a bias ``B``.
        exponentials: The body of the stage ``E``.
        turned: Inputs whose last two dimensions are exchanged.
        copies: Neighbouring heads of queries for each head of keys and values.
        group: Heads of queries, along an axis of their own, for each head of keys and values.
        computed: Whether a stage computes the keys point by point from an input.
        after: A stage that reads the result.
        values: Numbers in the bodies.
    """
    columns = {"Q": "n, w", "K": "m, w", "V": "m, w"}
    reads = {"Q": "i, k", "K": "j, k", "V": "j, d"}
    for name in turned:
        for pairs in (columns, reads):
            pairs[name] = ", ".join(reversed(pairs[name].split(", ")))
    keys = f"h // copies, {columns['K']}"
    inputs = f"Q[h, {columns['Q']}], {'L' if computed else 'K'}[{keys}]"
    inputs += f", V[h // copies, {columns['V']}]" + (", B[h, n, m]" if "B[" in scores else "")
    x, y, z = keys.split(", ")
    stages = (
        f"K[x:{x}, y:{y}, z:{z}] = tanh(L[x, y, z])" if computed else "",
        f"A[b:h, i:n, j:m; k:w] += Q[b, {reads['Q']}] * K[b // copies, {reads['K']}]",
        f"X[b:h, i:n, j:m] = {scores}",
        "M[b:h, i:n; j:m] max= X[b, i, j]",
        f"E[b:h, i:n, j:m] = {exponentials}",
        "S[b:h, i:n; j:m] += E[b, i, j]",
        "R[b:h, i:n, j:m] = E[b, i, j] / S[b, i]",
        f"Y[b:h, i:n, d:w; j:m] += R[b, i, j] * V[b // copies, {reads['V']}]",
        after,
    )
    texts = [inputs, *filter(None, stages)]
    if group > 1:
        texts = [it.replace("b:h,", "b:h, e:group,").replace("b, i", "b, e, i") for it in texts]
        texts[0] = texts[0].replace("Q[h", "Q[h, group")
    known = {"scale": w**-0.5, "unseen": -1e30, **values}
    sizes = {"h": h, "n": n, "w": w, "m": m or n, "copies": copies, "group": group}
    return written(*texts, **sizes, **known)


def tiled(workload: Workload, limits: ScheduleLimits = LIMITS) -> Sketch | None:
    """The sketch with tiles of scores, if there is one; there are always others."""
    found = {sketch.name.split("+")[0]: sketch for sketch in sketches(workload, limits)}
    assert set(found) - {ATTENTION_LABEL}
    return found.get(ATTENTION_LABEL)


def test_everything_but_the_packed_keys_is_inside_one_parallel_loop() -> None:
    sketch = tiled(attention(h=2, n=64, d=32))
    assert sketch is not None
    places = {s.stage: (s.consumer, s.at) for s in sketch.steps if isinstance(s, FuseProducer)}
    assert {name for name, place in places.items() if place == ("Y", "i.0")} == {"A", "R"}
    # A row of the softmax is done before the next one begins.
    row = {name for name, place in places.items() if place == ("R", "i.0")}
    assert row == {"E", "M", "M_partial", "S", "S_partial"}
    assert Inline("X") in sketch.steps
    assert [s for s in sketch.steps if isinstance(s, Parallel)] == [Parallel("Y", ("b.0", "i.0"))]
    nest = derive_nest(sketch)
    outside = [it.name for it in nest.statements if it.loops[0].name != "Y.b.0*Y.i.0"]
    assert outside == ["K.pack"]
    assert {buffer.name for buffer in nest.buffers if buffer.depth == 0} == {"K.pack"}


def test_keys_that_heads_share_are_packed_once_for_all_of_them() -> None:
    sketch = tiled(attending(2, 64, 32, group=4))
    assert sketch is not None
    (packed,) = (it for it in derive_nest(sketch).statements if it.name == "K.pack")
    assert not any(".e" in loop.name for loop in packed.loops)


def test_heads_may_share_keys_at_a_quotient() -> None:
    sketch = tiled(attending(4, 64, 32, copies=2))
    assert sketch is not None
    (packed,) = (it for it in derive_nest(sketch).statements if it.name == "K.pack")
    assert packed.loops[0].extent.value == 2  # heads of keys


@pytest.mark.parametrize(
    ("workload", "facts"),
    [
        (attention(h=1, n=8, d=16, m=32), "pack: K"),
        (attending(m=32, turned="K"), "pack: K"),
        # Values are packed where they are not contiguous.
        (attending(m=32, turned="V"), "pack: K V"),
        (attending(after=EPILOGUE), "fuse_consumer: T"),
        # Sums of halves are rounded where a tile is written.
        (attention(h=1, n=4, d=16, m=32, dtype="bfloat16"), "fuse_consumer: O"),
        (attending(2, 64, 32, group=4), "parallel Y b.0 e.0 i.0"),
        (attending(computed=True), "inline: K X"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_facts(workload: Workload, facts: str) -> None:
    check_facts(workload, facts, ATTENTION_LABEL)
    sketch = tiled(workload)
    assert sketch is not None
    assert all(step.at is None for step in of_kind(sketch, Pack))
    assert all(it.at == "i.1" for it in of_kind(sketch, FuseConsumer) if it.producer == "Y")


@pytest.mark.parametrize(
    "workload",
    [
        attention(h=1, n=197, d=64, m=64),  # no tile of rows divides
        attention(h=1, n=8, d=64, m=197),  # no vector of scores
        attention(h=1, n=8, d=3, m=64),  # no vector of results
        evolve(attention(h=1, n=8, d=16), outputs=("A", "Y"), parameters={}),
        evolve(attention(h=1, n=8, d=16), outputs=("R", "Y"), parameters={}),
    ],
)
def test_other_attentions_are_tiled_stage_by_stage(workload: Workload) -> None:
    assert tiled(workload) is None


@pytest.mark.parametrize("lacking", ["fuse_producer", "inline"])
def test_backends_that_lack_a_step_have_the_other_sketches(lacking: str) -> None:
    limits = evolve(LIMITS, steps=LIMITS.steps - {lacking})
    assert tiled(attention(h=1, n=8, d=16), limits) is None


def test_scores_of_a_tile_fit_the_second_cache() -> None:
    workload = attention(h=2, n=64, d=32, m=4096)
    space = SketchSpace(workload, TARGET, LIMITS)
    (sketch,) = (it for it in space.sketches() if it.name == ATTENTION_LABEL)
    (cache,) = (cache for cache in TARGET.caches if cache.level == 2)
    configs = islice(space.feasible_set(sketch).enumerate(), 0, None, 997)
    found = {
        config["Y.i.1"] * config["Y.i.2"]
        for config in (dict(zip(sketch.param_names, row, strict=True)) for row in configs)
    }
    assert max(found) * 2 * 4096 * 4 <= cache.size_bytes < 2 * max(found) * 2 * 4096 * 4


@settings(max_examples=settings.default.max_examples // 3)
@given(
    st.tuples(st.integers(1, 2), st.integers(2, 20), st.integers(1, 3), st.integers(1, 4)),
    st.sampled_from(["Q", "K", "V"]),
    st.sampled_from(["plain", "one head of keys", "bias", "computed keys", "epilogue"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_tiles_compute_the_reference(
    sizes: tuple[int, int, int, int], turned: str, variant: str, causal: bool, seed: int
) -> None:
    """Of any number of heads and rows, and of half vectors of keys and of results."""
    heads, rows, widths, keys = sizes
    rows, columns = (8 * keys, 8 * keys) if causal else (rows, 4 * keys)
    scores = CAUSAL if causal else SCORES
    workload = attending(
        heads,
        rows,
        4 * widths,
        columns,
        scores=f"({scores}) + B[b, i, j]" if variant == "bias" else scores,
        turned=turned,
        copies=heads if variant == "one head of keys" else 1,
        computed=variant == "computed keys",
        after=EPILOGUE if variant == "epilogue" else "",
    )
    made = generate_sketches(workload, preset("haswell-2core"), LIMITS, BUILT_IN_RULES).sketches
    found = [sketch for sketch in made if sketch.name.split("+")[0] == ATTENTION_LABEL]
    assert bool(found) == (rows not in (17, 19))
    for tiles in found:
        sketch, feasible, _ = loosen(tiles)
        (row,) = feasible.uniform(1, seed).tolist()
        check_reference(workload, [Candidate(sketch, tuple(row))], seed, 1e-4)


ALL = {"Y", "A", "R", "E", "M_partial", "S_partial"}


def tiles_of(workload: Workload, limits: ScheduleLimits = LIMITS) -> Sketch:
    made = generate_sketches(workload, TARGET, limits, BUILT_IN_RULES).sketches
    (sketch,) = (it for it in made if it.name.split("+")[0] == ATTENTION_LABEL)
    return sketch


def bounded(workload: Workload, limits: ScheduleLimits = LIMITS) -> set[str]:
    """Stages of which a loop is bounded."""
    return {it.stage for it in tiles_of(workload, limits).steps if isinstance(it, BoundLoop)}


def masked(
    offset: int = 0, lowest: float = -math.inf, n: int = 16, added: bool = False, **bodies: str
) -> Workload:
    """An attention in which a query sees keys up to ``offset`` behind it.

    Args:
        offset: May be negative.
        lowest: In place of what is hidden.
        n: Queries and keys.
        added: Whether an input is added to what is seen.
        bodies: Other bodies of stages.
    """
    scores = f"({BIASED if added else SCORES}) if i + offset + 1 > j else lowest"
    return attending(n=n, scores=scores, offset=offset, lowest=lowest, **bodies)


def with_zeros(n: int = 16, added: bool = False) -> Workload:
    """Scores and exponentials that are zero where they are hidden, as in Relax's attention."""
    return masked(0, 0.0, n, added, exponentials=f"{EXPONENTIALS} if j <= i else 0.0")


@given(
    st.sampled_from(["lt", "le", "gt", "ge"]),
    st.tuples(st.integers(-3, 3), st.integers(-3, 3)),
    *(st.booleans() for _ in range(3)),
)
def test_a_condition_divides_the_columns_of_a_row(
    op: str, added: tuple[int, int], swapped: bool, cast: bool, negated: bool
) -> None:
    row, column = IndexValue(var("i") + added[0]), IndexValue(var("j") + added[1])
    first, second = (row, column) if swapped else (column, row)
    condition: ScalarExpr = Binary(op, Cast("int64", first) if cast else first, second)
    if negated:
        condition = Unary("not", condition)
    found = shown_columns(condition, "i", "j")
    assert found is not None
    rows, columns = np.ogrid[0:12, 0:12]
    holds = np.asarray(evaluate_body(condition, {"i": rows, "j": columns}, {}), dtype=np.bool_)
    offset, near = found
    np.testing.assert_array_equal(holds == near, columns <= rows + offset)


@pytest.mark.parametrize(
    "condition",
    [
        Binary("eq", IndexValue(var("j")), IndexValue(var("i"))),
        Binary("le", IndexValue(var("j") * 2), IndexValue(var("i"))),
        Binary("le", IndexValue(var("j") + var("b")), IndexValue(var("i"))),
        Binary("le", IndexValue(var("j")), Constant(4, "int64")),
        Binary("le", IndexValue(var("j") // 2), IndexValue(var("i"))),
        Binary("le", load("P", "j"), IndexValue(var("i"))),
        load("P", "i", "j"),
    ],
)
def test_other_conditions_do_not(condition: ScalarExpr) -> None:
    assert shown_columns(condition, "i", "j") is None


@pytest.mark.parametrize(
    ("workload", "stages"),
    [
        (attention(h=1, n=16, d=16, causal=1), ALL),
        (attention(h=1, n=16, d=16), set()),
        (masked(), ALL),
        (masked(3), ALL),
        (masked(lowest=-1e4), set()),  # a score may be as low
        (masked(-1), set()),  # the first query sees nothing
        # What is added may hide all keys, which then have equal weights, or none.
        (masked(lowest=-1e30, added=True), set()),
        (masked(added=True), ALL),
        (with_zeros(), ALL - {"M_partial"}),  # zeros are among the scores
        (with_zeros(added=True), ALL - {"M_partial"}),
        (masked(n=72), {"Y", "A", "R"}),  # lanes leave a rest of the keys
    ],
)
def test_loops_that_are_bounded(workload: Workload, stages: set[str]) -> None:
    assert bounded(workload) == stages


def test_backends_without_the_step_compute_what_is_hidden() -> None:
    workload = attention(h=1, n=16, d=16, causal=1)
    without = evolve(LIMITS, steps=LIMITS.steps - {"bound_loop"})
    assert bounded(workload, without) == set()


def test_bounds_are_printed() -> None:
    text = describe(tiles_of(attention(h=1, n=16, d=16, causal=1)))
    assert "for Y.j.0 in Y.j.0 while j <= i + 0:" in text


@settings(max_examples=settings.default.max_examples // 8, deadline=None)
@given(
    st.sampled_from([8, 16, 24, 40, 64, 72, 136]),
    st.integers(0, 20),
    st.sampled_from(["masked", "biased", "zeros", "added"]),
    st.integers(0, 2**32),
)
def test_what_is_left_out_changes_nothing(n: int, offset: int, form: str, seed: int) -> None:
    """Elements that a loop leaves out are NaN in the interpreter, and nobody reads them."""
    if form in ("masked", "biased"):
        workload = masked(offset, n=n, added=form == "biased")
    else:
        workload = with_zeros(n, form == "added")
    sketch, feasible, _ = loosen(tiles_of(workload))
    inputs = random_inputs(workload, np.random.default_rng(seed))
    if form == "biased":
        # Some queries are shown no key at all, and have no weights that are numbers.
        inputs["B"][:, :, : n // 2] = -np.inf
    (row,) = feasible.uniform(1, seed).tolist()
    with np.errstate(invalid="ignore"):
        wanted = reference_outputs(workload, inputs)["Y"]
        got = run_candidate(Candidate(sketch, tuple(row)), inputs)["Y"]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_half_of_the_products_is_computed() -> None:
    """Up to the tiles on the diagonal, in the counts that models see."""
    workload = attention(h=2, n=256, d=32, causal=1)
    space = SketchSpace(workload, TARGET, LIMITS)
    (sketch,) = (it for it in space.sketches() if it.name == ATTENTION_LABEL)
    nest = derive_nest(sketch)
    for row in space.feasible_set(sketch).uniform(20, 0).tolist():
        config = dict(zip(sketch.param_names, row, strict=True))
        for statement in nest.statements:
            if statement.name not in ("A", "Y", "E"):
                continue
            (place,) = (i for i, loop in enumerate(statement.loops) if loop.bound is not None)
            whole = math.prod(int(evaluate(it.extent, config)) for it in statement.loops)
            rows, columns = (
                int(evaluate(statement.reach(axis, place + 1), config)) for axis in ("i", "j")
            )
            tiles, rounds = 256 // rows, 256 // columns
            beyond = int(evaluate(statement.loops[place].bound.offset, config))
            run = sum(
                min(rounds, (tile * rows + rows - 1 + beyond) // columns + 1)
                for tile in range(tiles)
            )
            counted = int(evaluate(statement.trips(len(statement.loops)), config))
            # The mean does not round each row of tiles.
            least = whole * max(0, run - tiles / 2) / (tiles * rounds)
            assert least <= counted <= whole * min(1, (run + tiles / 2) / (tiles * rounds))
            assert run < tiles * rounds or rounds == 1 or tiles == 1

"""Bank conflicts of padded and turned rows: what the draft expects, against addresses counted."""

from __future__ import annotations

from collections import Counter

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from autotune.ir.expressions import const
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import gemm
from autotune.models.pruning.gpu_accesses import access_costs
from autotune.nest import LoopNest, Statement, derive_nest
from autotune.sketches import (
    Accumulate,
    Bind,
    CooperativeFetch,
    Order,
    SharedLayout,
    Sketch,
    Step,
    Tile,
)

WARP, BANKS, FETCHES = 32, 32, 2
PLAIN, TURNED = (0, 1), (1, 0)


def nest_of(rows: int, columns: int, depth: int, lanes: int, layout: SharedLayout) -> LoopNest:
    """A block of ``rows`` x ``columns`` threads, one result each, that fetches ``depth`` terms."""
    threads = rows * columns
    steps: tuple[Step, ...] = (
        Tile("C", "i", (const(2), const(rows))),
        Tile("C", "j", (const(2), const(columns))),
        Tile("C", "k", (const(FETCHES), const(depth))),
        Order("C", ("i.0", "j.0", "i.1", "j.1", "k.0", "k.1")),
        Bind("C", ("i.0", "j.0"), "block"),
        Bind("C", ("i.1", "j.1"), "thread"),
        CooperativeFetch("C", "A", "k.0", const(threads), const(lanes)),
        layout,
        CooperativeFetch("C", "B", "k.0", const(threads), const(1)),
        Accumulate("C", "j.1", (const(1), const(1))),
    )
    workload = gemm(m=2 * rows, n=2 * columns, k=FETCHES * depth)
    return derive_nest(Sketch("made", workload, (), (), steps))


def statement_of(nest: LoopNest, name: str) -> Statement:
    return next(statement for statement in nest.statements if statement.name == name)


def wavefronts(words: list[int]) -> int:
    """Times that a warp's threads ask the most asked bank for another word."""
    return max(Counter(word % BANKS for word in set(words)).values())


@given(
    st.sampled_from([32, 64, 128]),
    st.sampled_from([4, 8, 16, 32, 64]),
    st.sampled_from([0, 4, 8]),
    st.sampled_from([PLAIN, TURNED]),
)
def test_what_threads_read(rows: int, depth: int, pad: int, dims: tuple[int, ...]) -> None:
    nest = nest_of(rows, 1, depth, 1, SharedLayout("C", "A", dims, const(pad)))
    reads = statement_of(nest, "C")
    only_a = tuple(it for it in reads.accesses if it.buffer == "A.fetch")
    costs = access_costs(nest, evolve(reads, accesses=only_a))
    loads = int(evaluate(costs.instructions, {}))
    # Words that a thread loads at once, of all that it reads.
    width = FETCHES * depth // loads
    places = [thread * (depth + pad) if dims == PLAIN else thread for thread in range(WARP)]
    asked = 0
    for first in range(0, WARP, WARP // width):
        # Of vectors, a quarter or a half of the threads is served at a time.
        served = places[first : first + WARP // width]
        asked += wavefronts([place + lane for place in served for lane in range(width)])
    found = int(evaluate(costs.shared_wavefronts, {})) / loads
    assert found == asked


@given(
    st.sampled_from([(32, 1), (32, 4), (64, 2), (16, 8)]),
    st.sampled_from([4, 8, 16, 32, 64]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([0, 4, 8]),
)
def test_what_a_turned_copy_stores(
    block: tuple[int, int], depth: int, lanes: int, pad: int
) -> None:
    """Every thread stores its vector element by element.

    Threads along rows and those across them meet in more banks than the draft expects of both
    by themselves: at most twice.
    """
    rows, columns = block
    nest = nest_of(rows, columns, depth, lanes, SharedLayout("C", "A", TURNED, const(pad)))
    copy = statement_of(nest, "A.fetch")
    costs = access_costs(nest, copy)
    elements = [(thread * lanes // depth, thread * lanes % depth) for thread in range(WARP)]
    expected = wavefronts([k * (rows + pad) + i for i, k in elements])
    rounds = -(-rows * depth // (rows * columns * lanes))
    found = int(evaluate(costs.shared_wavefronts, {})) / (FETCHES * rounds * lanes)
    assert expected / 2 <= found <= expected
    if pad == 0 and rows % BANKS == 0 and depth >= WARP * lanes:
        assert found == expected == WARP

"""Spaces of parameters alone: columns, sampling, moves, digests."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.sketches import Candidate, Categorical, Ordinal
from autotune.spaces.parameters import Parameter, column_scale, parameter_space, recorded_space
from autotune.spaces.parameters.parameter import Condition, parse_condition
from autotune.spaces.parameters.parameter_space import translate

BLOCK = Parameter("block", (16, 32, 64, 128), default=32)
TILE = Parameter("tile", (1, 2, 4))
FLAG = Parameter("flag", (False, True))
ALPHA = Parameter("alpha", (0.5, 1.0, 2.0))
LAYOUT = Parameter("layout", ("nchw", "nhwc"))
ALL = (BLOCK, TILE, FLAG, ALPHA, LAYOUT)


def test_values_that_are_whole_stand_for_themselves() -> None:
    assert BLOCK.column == Ordinal("block", (16, 32, 64, 128))
    assert FLAG.column == Ordinal("flag", (0, 1))
    assert ALPHA.column == Categorical("alpha", ("0.5", "1.0", "2.0"))
    assert LAYOUT.column == Categorical("layout", ("nchw", "nhwc"))
    scales = [column_scale(it.column) for it in ALL]
    assert [None if it is None else it.tolist() for it in scales] == [
        [16, 32, 64, 128],
        [1, 2, 4],
        [0, 1],
        [0.5, 1.0, 2.0],
        None,
    ]


@pytest.mark.parametrize("parameter", ALL)
def test_every_value_is_read_back(parameter: Parameter) -> None:
    for value in parameter.values:
        found = parameter.decode(parameter.encode(value))
        assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Parameter("block", (1, 1)), "has value 1 twice"),
        (lambda: Parameter("block size", (1,)), "is called 'block size'"),
        (lambda: Parameter("block", ()), "has 0 values"),
        (lambda: Parameter("block", (1, float("nan"))), "not finite"),
        (lambda: Parameter("block", (1, None)), "None; values are"),  # type: ignore[arg-type]
        (
            lambda: Parameter("block", (16, 32), 24),
            "cannot be 24; allowed: 16, 32; the near",
        ),
        (lambda: LAYOUT.encode("nhcw"), "the nearest is 'nhwc'"),
        (lambda: BLOCK.decode(17), "cannot be 17"),
        (lambda: parameter_space("p", []), "no parameters"),
        (lambda: parameter_space("p", [BLOCK, BLOCK]), "two parameters are called 'block'"),
        (lambda: recorded_space("p", [TILE], np.array([[1], [1]])), "there twice: {'tile': 1}"),
        (lambda: recorded_space("p", [TILE], np.zeros((0, 1), dtype=np.int64)), r"not \[0, 1\]"),
    ],
)
def test_mistakes_are_named(made: object, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        made()  # type: ignore[operator]


def test_a_space_that_nothing_satisfies_names_the_constraint() -> None:
    with pytest.raises(InvalidValueError, match="'tile > 4' beside the 1 before it"):
        parameter_space("p", ALL, ["block < 128", "tile > 4"])


def test_constraints_over_whole_numbers_need_no_table() -> None:
    by_name = {it.name: it for it in ALL}
    texts = ["block * tile <= 128 or flag", "block % tile == 0", "layout == 'nchw' or tile < 4"]
    assert all(translate(parse_condition(text, by_name), by_name) for text in texts)
    assert translate(parse_condition("alpha * tile < 4", by_name), by_name) is None


def test_large_spaces_are_counted_without_being_listed() -> None:
    many = [Parameter(f"p{number}", range(1, 33)) for number in range(12)]
    space = parameter_space("p", many, ["p0 * p1 <= 64", "p2 + p3 == p4"])
    products = sum(x * y <= 64 for x in range(1, 33) for y in range(1, 33))
    sums = sum(x + y <= 32 for x in range(1, 33) for y in range(1, 33))
    assert space.count() == products * sums * 32**7
    batch = space.sample(64, np.random.default_rng(0))
    assert space.contains(batch).all()


def test_moves_stay_among_recorded_configurations() -> None:
    rng = np.random.default_rng(3)
    rows = np.array([[b, t] for b in BLOCK.values for t in TILE.values if b * t < 200])
    space = recorded_space("p", [BLOCK, TILE], rows[rng.permutation(len(rows))])
    assert space.count() == len(rows)
    mothers, fathers = space.sample(40, rng), space.sample(40, rng)
    moved, mixed = space.neighbours(mothers, rng), space.crossover(mothers, fathers, rng)
    assert space.contains(moved).all() and space.contains(mixed).all()
    assert (mixed.parts[0][1] != mothers.parts[0][1]).any()
    for child, mother, father in zip(
        mixed.parts[0][1], mothers.parts[0][1], fathers.parts[0][1], strict=True
    ):
        assert ((child == mother) | (child == father)).all()


def test_programs_are_told_apart_and_candidates_are_read_back() -> None:
    space = parameter_space("p", ALL)
    workload = space.sketch.workload
    assert Workload.from_json(workload.to_json()) == workload
    others = [parameter_space("q", ALL), parameter_space("p", ALL[::-1])]
    assert len({workload.digest, *(it.sketch.workload.digest for it in others)}) == 3
    assert parameter_space("p", ALL, ["tile < 4"]).sketch.digest == space.sketch.digest
    config = {"block": 64, "tile": 2, "flag": True, "alpha": 0.5, "layout": "nhwc"}
    candidate = space.encode(config)
    again = Candidate.from_json(candidate.to_json(), workload)
    assert again.digest == candidate.digest and space.decode(again) == config
    assert space.sketch.is_opaque


def test_an_external_workload_has_nothing_else() -> None:
    with pytest.raises(InvalidValueError, match="is external, and has tensors"):
        Workload("p", (), (), ("Y",), external="0123456789abcdef")


def test_the_work_for_a_long_range_does_not_grow_with_calls_per_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = []
    holds = Condition.holds

    def counted(condition: Condition, columns: dict[str, np.ndarray]) -> np.ndarray:
        rows.append(len(next(iter(columns.values()))))
        return holds(condition, columns)

    monkeypatch.setattr(Condition, "holds", counted)
    steps = Parameter("steps", tuple(range(1, 2**18 + 1)))
    space = parameter_space(
        "program", [steps, FLAG], ["steps % 7 == 3", "steps / 2 > 9.5 or flag"]
    )
    left = [it for it in steps.values if it % 7 == 3]
    assert space.count() == len(left) + sum(it > 19 for it in left)
    assert len(rows) < 64


def test_a_value_is_found_without_a_walk_through_all() -> None:
    class Watched(int):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Watched.compared += 1
            return int(self) == other

        __hash__ = int.__hash__

    values = tuple(map(Watched, range(1000)))
    parameter = Parameter("steps", values)
    Watched.compared = 0
    assert parameter.decode(parameter.encode(values[999])) == 999
    assert Watched.compared < 10

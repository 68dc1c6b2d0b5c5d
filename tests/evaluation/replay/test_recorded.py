"""Recorded spaces: what they are checked for."""

from __future__ import annotations

import pytest
from attrs import evolve
from recorded_spaces import PARAMETERS, small_space

from autotune.errors import AutotuneError
from autotune.evaluation.replay.recorded import Evaluation, check_units, make_space

CONFIG = {"block": 1, "tile": 1, "layout": "row", "scale": 1, "padded": False}


def test_numbers_are_equal_by_value_and_truth_values_are_not() -> None:
    space = make_space("s", PARAMETERS, [Evaluation(CONFIG, "ok", 1.0)])
    assert space.positions.tolist() == [[0, 0, 0, 1, 0]]
    with pytest.raises(AutotuneError, match="0 is no value of parameter 'padded'"):
        make_space("s", PARAMETERS, [Evaluation({**CONFIG, "padded": 0}, "ok", 1.0)])


@pytest.mark.parametrize(
    ("evaluations", "message"),
    [
        ([], "s has no configuration"),
        ([Evaluation(CONFIG, "crash")], "s has no valid configuration among 1"),
        ([Evaluation(CONFIG, "ok", float("nan"))], "takes nan s, which is no time"),
        ([Evaluation(CONFIG, "ok", -1.0)], "takes -1.0 s, which is no time"),
        ([Evaluation(CONFIG, "ok", 1.0, (0.0,))], "takes 0.0 s, which is no time"),
        ([Evaluation(CONFIG, "ok", 1.0, compiling=float("inf"))], "compiling took inf s"),
        ([Evaluation(CONFIG, "ok")], "is ok and takes None s"),
        ([Evaluation(CONFIG, "crash", 1.0)], "is crash and takes 1.0 s"),
        ([Evaluation(CONFIG, "fine", 1.0)], "unknown status 'fine'"),
        ([Evaluation({**CONFIG, "colour": 1}, "ok", 1.0)], "unknown parameter of s 'colour'"),
        (
            [Evaluation(CONFIG, "ok", 1.0), Evaluation(CONFIG, "crash")],
            "padded=False is there twice, as 1 s and as crash",
        ),
    ],
)
def test_what_is_wrong_is_named(evaluations: list[Evaluation], message: str) -> None:
    with pytest.raises(AutotuneError) as caught:
        make_space("s", PARAMETERS, evaluations)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_units_that_differ_by_a_thousand_are_noticed() -> None:
    one, slower = small_space("k-one"), small_space("k-two", 30.0)
    check_units([one, slower, small_space("other-one", 1e6)])
    # Of other problems, or kernels, nothing is said.
    check_units([evolve(one, problem="[64]"), evolve(small_space("k-two", 1e3), problem="[9]")])
    with pytest.raises(AutotuneError, match=r"best time of k is 0.001 s in k-one and 1 s in k-t"):
        check_units([one, small_space("k-two", 1000.0)])


def test_files_without_a_kernel_are_compared_by_their_parameters() -> None:
    one = evolve(small_space("one"), kernel="one")
    other = evolve(small_space("other", 1e-3), kernel="other")
    with pytest.raises(AutotuneError, match="1000 times as much"):
        check_units([one, other])
    check_units([one, evolve(other, parameters=PARAMETERS[:-1])])


def test_digests_tell_outcomes_apart() -> None:
    assert small_space("a").digest == small_space("b").digest
    assert small_space("a").digest != small_space("a", 2.0).digest

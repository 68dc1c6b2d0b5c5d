"""Directions that axes run in for indices to grow, or fall, along all of theirs."""

from __future__ import annotations

import pytest
from backward_reads import BACKWARDS, both_ways, convolution, matrix_product, relative_scores
from divided_reductions import fractional_convolution

from autotune.ir.workloads import Workload, conv2d
from autotune.sketches import running_directions, runs_one_way


@pytest.mark.parametrize(
    ("workload", "backwards"),
    [
        (conv2d(h=8, w=8, ci=4, co=4), set()),
        (matrix_product(8, "B k"), set()),
        (convolution(9, 3, 4, 8, weights=True), set()),
        (convolution(9, 3, 4, 8), {"k"}),
        (relative_scores(8, 4), set()),
        (fractional_convolution(), set()),
    ],
    ids=str,
)
def test_only_reduced_axes_run_backwards_and_only_where_it_helps(
    workload: Workload, backwards: set[str]
) -> None:
    directions = running_directions(workload.stages[-1])
    assert {axis for axis, direction in directions.items() if direction < 0} == backwards


@pytest.mark.parametrize("workload", [*BACKWARDS.values(), conv2d(h=8, w=8, ci=4, co=4)], ids=str)
def test_indices_run_one_way(workload: Workload) -> None:
    stage = workload.stages[-1]
    directions = running_directions(stage)
    forms = [form for load in stage.loads for form in stage.forms(load)]
    assert forms and all(runs_one_way(form, directions) for form in forms)


def test_what_falls_along_an_axis_of_the_result_crosses() -> None:
    (stage,) = relative_scores(8, 4).stages
    directions = running_directions(stage)
    crossing = [
        load.tensor
        for load in stage.loads
        if not all(runs_one_way(form, directions) for form in stage.forms(load))
    ]
    assert crossing == ["B"]


def test_outer_axes_of_the_result_run_backwards_where_that_is_allowed() -> None:
    (stage,) = relative_scores(8, 4).stages
    directions = running_directions(stage, results=True)
    assert directions == {"i": -1, "j": 1, "k": 1}
    forms = [form for load in stage.loads for form in stage.forms(load)]
    assert all(runs_one_way(form, directions) for form in forms)
    (stage,) = both_ways(8, 3, 4).stages
    forms = [form for load in stage.loads for form in stage.forms(load)]
    directions = running_directions(stage, results=True)
    assert sum(not runs_one_way(form, directions) for form in forms) == 1

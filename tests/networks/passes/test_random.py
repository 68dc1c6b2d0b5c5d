"""Every pass leaves what a graph computes as it is, alone and behind the others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from random_graphs import MACHINE, check_equal, labels, random_graphs

from autotune.networks.graph import Graph
from autotune.networks.passes import graph_passes
from autotune.networks.passes.views import views


@pytest.mark.parametrize("name", ["merge_equal", "views", "fold_scales", "fuse"])
@given(random_graphs())
@settings(max_examples=15)
def test_a_pass_alone(name: str, graph: Graph) -> None:
    check_equal(graph, graph_passes()[name])


@given(random_graphs())
@settings(max_examples=15)
def test_views_are_moved_once(graph: Graph) -> None:
    again, _ = views(check_equal(graph, views), MACHINE)
    third, _ = views(again, MACHINE)
    assert labels(third) == labels(again)


@given(random_graphs())
@settings(max_examples=30)
def test_all_passes_in_order(graph: Graph) -> None:
    check_equal(graph, *graph_passes().values())

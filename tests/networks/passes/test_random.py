"""Every pass leaves what a graph computes as it is, alone and behind the others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from autotune.networks.graph import Graph
from autotune.networks.passes import graph_passes
from tests.support.random_graphs import check_equal, random_graphs


@pytest.mark.parametrize("name", ["merge_equal", "views", "fold_scales", "fuse"])
@given(random_graphs())
@settings(max_examples=15)
def test_a_pass_alone(name: str, graph: Graph) -> None:
    check_equal(graph, graph_passes()[name])


@given(random_graphs())
@settings(max_examples=30)
def test_all_passes_in_order(graph: Graph) -> None:
    check_equal(graph, *graph_passes().values())

"""The passes by name, in order, and running them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.networks.frontend import PassReport
from autotune.networks.graph import Graph
from autotune.networks.passes.channels_last import choose_layout
from autotune.networks.passes.expected_costs import KeptSpeedups, user_file
from autotune.networks.passes.fold_scales import fold_scales
from autotune.networks.passes.fuse import fuse
from autotune.networks.passes.fuse_attention import fuse_attention
from autotune.networks.passes.merge_equal import constant_operands, merge_equal
from autotune.networks.passes.split_transposed import split_transposed
from autotune.networks.passes.views import views
from autotune.networks.passes.winograd import choose_winograd
from autotune.targets import Target

__all__ = ["GraphPass", "graph_passes", "run_passes"]

GraphPass = Callable[[Graph, Target], tuple[Graph, str]]
"""From a graph, and the machine that it is for (with as many cores as it has threads), to a graph
that computes the same, and what was changed, in a few words: ``"33 functions fused"``; "" where
nothing was."""


def graph_passes() -> dict[str, GraphPass]:
    """By name, in order."""
    path = user_file()
    kept = None if path is None else KeptSpeedups(path)
    afterwards = (views, fuse)
    # Views twice: scales and attentions are recognised where no reshapes are between, and both
    # choices of convolutions make products, which have reshapes around them.
    return {
        "merge_equal": merge_equal,
        "views": views,
        "fold_scales": fold_scales,
        "fuse_attention": fuse_attention,
        "constant_operands": constant_operands,
        "split_transposed": split_transposed,
        "layouts": partial(choose_layout, kept=kept, afterwards=afterwards),
        "winograd": partial(choose_winograd, kept=kept, afterwards=afterwards),
        "layout_views": views,
        "fuse": fuse,
    }


def run_passes(
    graph: Graph,
    machine: Target,
    threads: int,
    replaced: Mapping[str, Callable[[Graph], Graph] | None] | None = None,
    on_pass: Callable[[PassReport], None] = lambda report: None,
    clock: Callable[[], float] = perf_counter,
) -> tuple[Graph, tuple[PassReport, ...]]:
    """Run all passes.

    Args:
        graph: As it was read.
        machine: What the network is for.
        threads: How many threads it uses.
        replaced: By name of a pass: a function from graph to graph that takes its place, or None
            to leave it out.
        on_pass: Told of every pass once it is done.
        clock: Seconds.

    Raises:
        UnknownNameError: there is no pass of a name in ``replaced``.
        InvalidValueError: what replaces a pass returns no graph.
    """
    given, passes = replaced or {}, graph_passes()
    for name in given:
        if name not in passes:
            raise UnknownNameError("pass", name, passes)
    own = machine.with_cores(threads)
    reports = []
    for name, each in passes.items():
        begin, note = clock(), "left out"
        if name not in given:
            graph, note = each(graph, own)
        elif (instead := given[name]) is not None:
            graph, note = _checked(name, instead(graph)), "replaced"
        reports.append(PassReport(name, clock() - begin, note))
        on_pass(reports[-1])
    return graph, tuple(reports)


def _checked(name: str, graph: object) -> Graph:
    if not isinstance(graph, Graph):
        raise InvalidValueError(
            f"what replaces pass {name!r} returned {type(graph).__name__}, not a graph"
        )
    return graph

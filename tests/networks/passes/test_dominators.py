"""Where everything meets that is computed from a node."""

from __future__ import annotations

from hypothesis import given, settings

from autotune.networks import graph as ops
from autotune.networks.graph import Graph, input_value
from autotune.networks.passes.fuse import Flow
from tests.support.random_graphs import random_graphs


def test_branches_meet_where_they_are_joined() -> None:
    x = input_value("x", (4,), "float32")
    first = ops.unary("tanh", x)
    left, right = ops.unary("abs", first), ops.unary("neg", first)
    total = ops.binary("add", left, right)
    flow = Flow(Graph((x,), {"y": total}))
    assert [node.label for node in flow.nodes] == ["tanh", "abs", "neg", "add"]
    assert [flow.meeting(it) for it in range(4)] == [3, 3, 3, None]
    assert flow.between(0, 3) == [1, 2]
    returned = Flow(Graph((x,), {"y": total, "z": left}))
    assert returned.meeting(returned.place[id(left.node)]) is None
    assert returned.meeting(0) is None


@given(random_graphs())
@settings(max_examples=40)
def test_no_way_to_an_output_goes_past_the_meeting(graph: Graph) -> None:
    flow = Flow(graph)
    for number in range(len(flow.nodes)):
        meeting = flow.meeting(number)
        if meeting is not None:
            assert not any(flow.is_returned(it) for it in (number, *flow.between(number, meeting)))
            assert all(it <= meeting for it in flow.between(number, meeting))
            ends = (it for here in flow.between(number, meeting) for it in flow.readers[here])
            assert {*ends} <= {meeting, *flow.between(number, meeting)}

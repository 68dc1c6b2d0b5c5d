"""The order in which convolutions store tensors, chosen by what the draft model expects."""

from __future__ import annotations

from autotune.networks.graph import Graph
from autotune.networks.kept_speedups import KeptSpeedups
from autotune.networks.passes.channels_last import channels_last, convolutions
from autotune.networks.passes.expected_costs import Passes, cost_key, expected_speedup
from autotune.targets import Target

__all__ = ["choose_layout"]

_GAIN = 1.03
"""The model's own order is kept where the other one is expected to gain less."""
_GAIN_ON_CPU = 0.65
"""The same on CPUs, where kernels whose channels come first are slower than expected.

Measured over expected speedup of the channels last, the best of eight candidates of the draft
model each way, one core of a Zen 3 with AVX2: convolutions of 1 x 1 taps 0.9, 1.0, 2.3 and 2.7
(geometric mean 1.55, of which this is the inverse: a network may have no others), depthwise ones
1.7, 3.4 and 5.2, those of 3 x 3 taps 1.5 (a stem) and 6 to 33; of ResNet-50 and MobileNet-V2.
"""
_VERSION = 2
"""Grows when this module or :func:`channels_last` expects another speedup of some network."""


def choose_layout(
    graph: Graph,
    machine: Target,
    kept: KeptSpeedups | None = None,
    afterwards: Passes = (),
) -> tuple[Graph, str]:
    """Store channels last where that is expected to be faster for the network as a whole.

    Args:
        graph: A network of operators.
        machine: What it runs on, with as many cores as it has threads.
        kept: What was expected of networks before; None to expect it anew.
        afterwards: The passes that cut a network into programs.
    """
    count = convolutions(graph)
    if not count:
        return graph, ""
    note = f"{count} convolutions"
    key = "" if kept is None else cost_key(f"layouts {_VERSION}", graph, machine)
    known = None if kept is None else kept.find(key)
    changed = None
    if known is None:
        changed = channels_last(graph)
        known = (expected_speedup(graph, changed, machine, afterwards),)
        if kept is not None:
            kept.keep(key, *known)
    (speedup,) = known
    if speedup is None:
        return graph, f"{note} stay: the space does not express them with the channels last"
    if speedup < (_GAIN_ON_CPU if machine.kind == "cpu" else _GAIN):
        return graph, f"{note} stay; channels last would be {speedup:.2f} times as fast"
    faster = f"{note} channels last, expected to be {speedup:.2f} times as fast"
    return changed or channels_last(graph), faster

"""Passes over the graph of a network, each a function from a graph to a graph."""

from autotune.networks.passes.pipeline import GraphPass, graph_passes, run_passes

__all__ = ["GraphPass", "graph_passes", "run_passes"]

"""The engine ``ray``: the machines of a Ray cluster."""

from __future__ import annotations

from attrs import frozen

from autotune.measure.engines.ray_cluster import RayCluster, check_address
from autotune.measure.engines.supervised import SupervisedEngine
from autotune.plugins import Context
from autotune.plugins.options import option, read_options

__all__ = ["RayOptions", "make_ray_engine"]


@frozen
class RayOptions:
    """Options of the runner ``ray``.

    Attributes:
        address: ``auto`` for the cluster that runs on this machine, or ``HOST:PORT`` of its head.
        num_workers: Most machines that time; 0 for all.
        builders: Processes that build on each node; 0 for one per processor that it offers.
        silence: Seconds after which a machine that sends nothing is given up.
    """

    address: str = option("auto")
    num_workers: int = option(0, low=0, high=100_000)
    builders: int = option(0, low=0, high=256)
    silence: float = option(30.0, low=2.0, high=86_400.0)


def make_ray_engine(context: Context) -> SupervisedEngine:
    """The runner ``ray`` of a run.

    Raises:
        InvalidValueError: an option is unknown or has no such value.
    """
    options = read_options("runner 'ray'", RayOptions, context.options)
    return SupervisedEngine(
        context,
        RayCluster(check_address(options.address)),
        builders=options.builders,
        timers=options.num_workers,
        silence=options.silence,
    )

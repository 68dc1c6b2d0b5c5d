"""Ray clusters on the loopback interface, whose nodes are processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Read when Ray is imported: without it, Ray looks for an address of the network.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
# A node that is gone is noticed after so long.
os.environ.setdefault("RAY_health_check_period_ms", "500")
os.environ.setdefault("RAY_health_check_timeout_ms", "1000")
os.environ.setdefault("RAY_health_check_failure_threshold", "4")

_STORE_BYTES = 100 << 20


def add_node(cluster: Any, cpus: int = 1) -> Any:
    """A more node."""
    return cluster.add_node(
        num_cpus=cpus, object_store_memory=_STORE_BYTES, node_ip_address="127.0.0.1"
    )


@contextmanager
def ray_cluster(nodes: int, cpus: int = 1) -> Iterator[Any]:
    """A cluster with a head, which offers no processor, and ``nodes`` others."""
    from ray.cluster_utils import Cluster

    head = {
        "num_cpus": 0,
        "object_store_memory": _STORE_BYTES,
        "include_dashboard": False,
        "node_ip_address": "127.0.0.1",
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(nodes):
            add_node(cluster, cpus)
        yield cluster
    finally:
        cluster.shutdown()

"""GPU sketches made by hand, with every factor free."""

from __future__ import annotations

from autotune.expressions import IntExpr, var
from autotune.sketches import (
    Accumulate,
    Bind,
    Factor,
    Fetch,
    Order,
    Ordinal,
    ProductEquals,
    Sketch,
    Step,
    Tile,
    UnrollLimit,
)
from autotune.workloads import Workload, gemm


def gemm_sketch(size: int, dtype: str = "float32", *, workload: Workload | None = None) -> Sketch:
    """A product of square matrices, tiled as "block, vthread, thread, serial".

    Parameters: five factors of i and of j, three of k, vector widths of the fetches of A and B,
    and a limit on unrolling. ``workload`` may be any with these axes and operands.
    """
    levels = {"i": 5, "j": 5, "k": 3}
    factors: dict[str, tuple[IntExpr, ...]] = {
        axis: tuple(var(f"{axis}{level}") for level in range(count))
        for axis, count in levels.items()
    }
    i, j = factors["i"], factors["j"]
    order = (
        *("i.0", "j.0", "i.1", "j.1", "i.2", "j.2"),
        *("k.0", "k.1", "i.3", "j.3", "k.2", "i.4", "j.4"),
    )
    steps: tuple[Step, ...] = (
        *(Tile("C", axis, parts) for axis, parts in factors.items()),
        Order("C", order),
        Bind("C", ("i.0", "j.0"), "block"),
        Bind("C", ("i.1", "j.1"), "vthread"),
        Bind("C", ("i.2", "j.2"), "thread"),
        Fetch("C", "A", "k.0", i[2] * j[2], var("lanes_a")),
        Fetch("C", "B", "k.0", i[2] * j[2], var("lanes_b")),
        Accumulate("C", "j.2", (j[3], j[4])),
        UnrollLimit("C", var("unroll")),
    )
    names = {axis: tuple(repr(part) for part in parts) for axis, parts in factors.items()}
    return Sketch(
        "gpu",
        workload or gemm(m=size, n=size, k=size, dtype=dtype),
        (
            *(Factor(name) for group in names.values() for name in group),
            *(Ordinal(name, (1, 2, 4, 8)) for name in ("lanes_a", "lanes_b")),
            Ordinal("unroll", (0, 16, 512)),
        ),
        tuple(ProductEquals(group, size, "workload") for group in names.values()),
        steps,
    )

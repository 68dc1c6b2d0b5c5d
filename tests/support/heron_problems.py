"""The problems that Heron (ASPLOS'23) generates for three accelerators, written by hand.

Extents are those of the loops that its schedule templates make; every split is one product, as
in its first rule. Variables between an extent and its innermost factors are extents of loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.ir.expressions import IntExpr, const, var
from autotune.spaces.problems import (
    AtMost,
    Constraint,
    ConstraintProblem,
    Divides,
    Domain,
    IntRange,
    Origin,
    Product,
    Select,
    Sum,
    Variable,
)

IntLike = IntExpr | int | str


def expression(value: IntLike) -> IntExpr:
    if isinstance(value, IntExpr):
        return value
    return var(value) if isinstance(value, str) else const(value)


class ProblemDraft:
    """A problem in the making."""

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        self.constraints: list[Constraint] = []

    def parameter(self, name: str, domain: Domain) -> None:
        self.variables.append(Variable(name, domain))

    def extent(self, name: str, most: int) -> None:
        self.variables.append(Variable(name, IntRange(1, most), "extent"))

    def product(self, total: IntLike, factors: Sequence[IntLike], step: str = "") -> None:
        parts = tuple(expression(factor) for factor in factors)
        self.constraints.append(Product(expression(total), parts, origin=Origin("", step)))

    def select(self, total: str, index: str, options: Sequence[IntLike]) -> None:
        parts = tuple(expression(option) for option in options)
        self.constraints.append(Select(var(total), var(index), parts, origin=Origin("", "attach")))

    def split(self, axis: str, extent: int, names: Sequence[str]) -> list[str]:
        """Splits an axis again and again from the outside; what remains before each split."""
        remaining: list[str] = []
        total: IntLike = extent
        for position, name in enumerate(names[:-1]):
            self.parameter(name, IntRange(1, extent))
            rest = f"{axis}.rest{position}" if position < len(names) - 2 else names[-1]
            if rest == names[-1]:
                self.parameter(rest, IntRange(1, extent))
            else:
                self.extent(rest, extent)
            self.product(total, (name, rest), f"split {axis}")
            remaining.append(rest)
            total = rest
        return remaining

    def problem(self, name: str) -> ConstraintProblem:
        return ConstraintProblem(name, tuple(self.variables), tuple(self.constraints))


def dl_boost_gemm(m: int, n: int, k: int) -> ConstraintProblem:
    """Products of 8-bit numbers by VNNI: 16 columns and 4 of k belong to one instruction."""
    draft = ProblemDraft()
    draft.parameter("position", IntRange(0, 3))
    for axis, extent, tile, lanes in (("i", m, "f", 1), ("j", n, "g", 16)):
        names = [f"p{axis}", f"c{axis}", f"r{axis}"]
        first, last = draft.split(axis, extent, names)
        draft.extent(f"{axis}.cache", extent)
        draft.select(f"{axis}.cache", "position", (extent, first, last, 1))
        leaves = [f"{tile}{index}" for index in range(1, 5)]
        for leaf in leaves:
            draft.parameter(leaf, IntRange(1, extent))
        draft.product(f"{axis}.cache", (*leaves, lanes), "tensorize")
    names = [f"h{index}" for index in range(1, 5)]
    for name in names:
        draft.parameter(name, IntRange(1, k))
    draft.product(k, (*names, 4), "tensorize")
    draft.variables.append(Variable("parallel", IntRange(1, 10**6), "extent"))
    draft.product("parallel", ("pi", "pj"), "fuse")
    draft.parameter("unroll", IntRange(0, 5))
    draft.parameter("vectorize", (0, 1))
    return draft.problem(f"dl-boost-gemm-{m}x{n}x{k}")


def tensor_core_gemm(m: int, n: int, k: int, free: bool = True) -> ConstraintProblem:
    """Half-precision products by wmma; ``free``: with unrolling, row offsets and vector loads."""
    draft = ProblemDraft()
    for name in ("wm", "wn"):
        draft.parameter(name, (8, 16, 32))
    draft.product(4096, ("wm", "wn", 16), "intrinsic")
    draft.parameter("shared", IntRange(0, 3))
    draft.parameter("local", IntRange(0, 3))
    draft.constraints.append(AtMost(var("shared"), var("local")))
    draft.variables.append(Variable("warps", IntRange(1, 32), "extent"))
    draft.parameter("t0", IntRange(1, 32))
    draft.parameter("t1", IntRange(1, 32))
    draft.product("warps", ("t0", "t1"), "bind threadIdx.y")
    draft.parameter("vector", (1, 2, 4, 8))
    for axis, extent, warp, intrinsic in (("i", m, "t0", "wm"), ("j", n, "t1", "wn")):
        names = [f"{part}{axis}" for part in ("b", "t", "x", "vo", "v")]
        block = draft.split(axis, extent, names)[0]
        draft.extent(f"{axis}.warp", extent)
        draft.product(block, (warp, f"{axis}.warp"), "split over warps")
        tiles = [f"q{index}{axis}" for index in range(4)]
        for tile in tiles:
            draft.parameter(tile, IntRange(1, extent))
        draft.product(f"{axis}.warp", (intrinsic, *tiles), "tensorize")
    draft.product("warps", ("ti", "tj"), "bind threadIdx.y")
    draft.product(32, ("xi", "xj"), "bind threadIdx.x")
    draft.product("vector", ("vi", "vj"), "vectorize")
    chain = [f"h{index}" for index in range(4)]
    for name in chain:
        draft.parameter(name, IntRange(1, k))
    draft.product(k, (*chain, 16), "tensorize")
    if free:
        _free_parameters(draft, m, n, k)
    return draft.problem(f"tensor-core-gemm-{m}x{n}x{k}")


def _free_parameters(draft: ProblemDraft, m: int, n: int, k: int) -> None:
    """Unrolling, vector loads, and rows in shared memory that are offset against conflicts."""
    draft.parameter("unroll", IntRange(0, 5))
    for operand in "ab":
        draft.parameter(f"{operand}.load", (1, 2, 4, 8))
    for operand, warp, extent in (("a", "t0", m), ("b", "t1", n)):
        axis = {"a": "i", "b": "j"}[operand]
        tiles = [var(f"q{index}{axis}") for index in range(4)]
        inner = expression({"a": "wm", "b": "wn"}[operand])
        depth = expression(16)
        steps = [var(f"h{index}") for index in range(4)]
        rows: list[IntExpr] = []
        columns: list[IntExpr] = []
        for tile, step in zip(tiles[::-1], steps[::-1], strict=True):
            rows.insert(0, inner)
            columns.insert(0, depth)
            inner, depth = inner * tile, depth * step
        draft.extent(f"{operand}.rows", extent)
        draft.select(f"{operand}.rows", "shared", rows)
        draft.extent(f"{operand}.columns", k)
        draft.select(f"{operand}.columns", "shared", columns)
        _shared_buffer(draft, operand, expression(f"{operand}.rows") * var(warp), k)
    draft.extent("c.columns", n)
    draft.product(n, ("bj", "c.columns"), "cache")
    draft.extent("c.rows", m)
    draft.product(m, ("bi", "c.rows"), "cache")
    _shared_buffer(draft, "c", var("c.rows"), n)


def _shared_buffer(draft: ProblemDraft, name: str, rows: IntExpr, columns: int) -> None:
    draft.parameter(f"{name}.offset", (0, 8, 16, 24, 32, 48))
    draft.extent(f"{name}.aligned", columns + 48)
    draft.constraints.append(
        Sum(var(f"{name}.aligned"), (var(f"{name}.columns"), var(f"{name}.offset")))
    )
    draft.variables.append(Variable(f"{name}.elements", IntRange(1, 24576), "memory"))
    draft.product(f"{name}.elements", (rows, f"{name}.aligned"), "cache in shared memory")


def vta_gemm(m: int, n: int, k: int) -> ConstraintProblem:
    """8-bit products by VTA's 1 x 16 x 16 instruction, with its three buffers' capacities."""
    draft = ProblemDraft()
    for axis, extent, lanes in (("i", m, 1), ("j", n, 16)):
        names = [f"{axis}{level}" for level in range(3)]
        for name in names:
            draft.parameter(name, IntRange(1, extent))
        draft.product(extent, (*names, lanes), "tensorize")
    for name in ("k0", "k1"):
        draft.parameter(name, IntRange(1, k))
    draft.product(k, ("k0", "k1", 16), "tensorize")
    draft.variables.append(Variable("cthread", IntRange(1, 2), "extent"))
    draft.product("cthread", ("i0", "j0"), "bind cthread")
    rows, columns, depth = var("i2"), var("j2") * 16, var("k1") * 16
    for name, size, capacity in (
        ("input", rows * depth, 32 * 1024),
        ("weight", columns * depth, 256 * 1024),
        ("accumulator", rows * columns * 4, 128 * 1024),
    ):
        draft.variables.append(Variable(f"{name}.bytes", IntRange(0, 2**40), "memory"))
        draft.product(f"{name}.bytes", (size,), "scope")
        draft.constraints.append(
            AtMost(var(f"{name}.bytes") * 2, const(capacity), origin=Origin("two threads"))
        )
    draft.parameter("lanes", (1, 2, 4, 8, 16))
    draft.constraints.append(Divides(var("lanes"), var("j2")))
    return draft.problem(f"vta-gemm-{m}x{n}x{k}")

"""The symbolic loop nest: what a sketch's steps make of a workload, with extents as expressions.

Every statement of the scheduled program (computations, their initialisation, packing copies,
write-backs) is listed with the loops around it, outermost first. Loops shared by statements
are the same object. Quantities follow from extents alone:

* ``reach(axis, depth)``: how far an axis moves inside the loops from ``depth`` on;
* the *region* of a buffer: the hull of what a statement touches inside those loops,
  ``sum(|c| * (reach - 1)) + 1`` in each dimension; this is what gets allocated;
* the *unique* elements: those really touched, fewer than the region under strides.
"""

from __future__ import annotations

from attrs import field, frozen

from autotune.expressions import AffineForm, IntExpr, ScalarExpr, const, maximum, minimum
from autotune.workloads import Workload
from autotune.workloads.workload import DTYPE_BYTES

LOOP_KINDS = ("serial", "parallel", "vectorized", "unrolled")


@frozen(eq=False)
class Loop:
    """One loop. ``parts`` says how far each axis moves in it (several for a fused loop)."""

    name: str
    extent: IntExpr
    parts: tuple[tuple[str, IntExpr], ...]
    kind: str = "serial"


@frozen
class Access:
    """How a statement touches a buffer.

    Attributes:
        buffer: Name of the buffer.
        forms: Index of each dimension as an affine form over the statement's axes.
        shape: Extents that bound the region of each dimension.
        write: Whether it is written.
    """

    buffer: str
    forms: tuple[AffineForm, ...]
    shape: tuple[IntExpr, ...]
    write: bool = False


@frozen(eq=False)
class Statement:
    """One statement of the scheduled program.

    Attributes:
        name: ``C``, ``C.init``, ``C.write``, ``B.pack``, ...
        stage: The stage on whose behalf it runs.
        role: compute, init, write or pack.
        loops: Loops around it, outermost first.
        accesses: Reads, then the write.
        operations: Arithmetic operations per execution, by kind.
        body: What is stored, or combined into what is stored; over the statement's axes. None
            for an initialisation or a plain copy.
        sources: Buffer from which the body's loads of each tensor are served.
        corners: For a copy, whose own axes count from the corner of a tile: how far the corner
            moves along each own axis with each axis of the loops outside.
    """

    name: str
    stage: str
    role: str
    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    operations: dict[str, int] = field(factory=dict)
    body: ScalarExpr | None = None
    sources: dict[str, str] = field(factory=dict)
    corners: dict[str, dict[str, IntExpr]] = field(factory=dict)

    @property
    def axes(self) -> tuple[str, ...]:
        """Axes that move in some loop."""
        return tuple(dict.fromkeys(axis for loop in self.loops for axis, _ in loop.parts))

    def trips(self, depth: int) -> IntExpr:
        """How often the loops from ``depth`` on are entered: product of the outer extents."""
        result = const(1)
        for loop in self.loops[:depth]:
            result = result * loop.extent
        return result

    def reach(self, axis: str, depth: int) -> IntExpr:
        """Distinct values of ``axis`` inside the loops from ``depth`` on."""
        result = const(1)
        for loop in self.loops[depth:]:
            for name, extent in loop.parts:
                if name == axis:
                    result = result * extent
        return result

    def region(self, access: Access, depth: int) -> tuple[IntExpr, ...]:
        """Hull of what ``access`` touches inside the loops from ``depth`` on, by dimension."""
        result = []
        for form, size in zip(access.forms, access.shape, strict=True):
            extent = hull(form, {axis: self.reach(axis, depth) for axis in form.coefficients})
            exact = is_axis(form) or not form.coefficients
            for axis, coefficient in form.coefficients.items():
                for outer, step in self.corners.get(axis, {}).items():
                    extent = extent + (self.reach(outer, depth) - 1) * step * abs(coefficient)
                    exact = False
            result.append(extent if exact else minimum(extent, size))
        return tuple(result)


@frozen(eq=False)
class Buffer:
    """A buffer that the schedule introduces, or that holds an intermediate result.

    Attributes:
        name: Name, as accesses use it.
        shape: Allocated extents.
        dtype: Element type.
        depth: Number of loops that enclose the allocation.
    """

    name: str
    shape: tuple[IntExpr, ...]
    dtype: str
    depth: int

    @property
    def elements(self) -> IntExpr:
        """Allocated elements."""
        result = const(1)
        for extent in self.shape:
            result = result * extent
        return result

    @property
    def bytes(self) -> IntExpr:
        """Allocated bytes."""
        return self.elements * DTYPE_BYTES[self.dtype]


@frozen(eq=False)
class LoopNest:
    """Statements in program order, and the buffers that the schedule allocates.

    ``workload`` is the sketch's with its reductions split as the steps say.
    """

    statements: tuple[Statement, ...]
    buffers: tuple[Buffer, ...]
    workload: Workload

    def element_bytes(self, buffer: str) -> int:
        """Bytes of one element of a buffer or tensor."""
        for allocated in self.buffers:
            if allocated.name == buffer:
                return DTYPE_BYTES[allocated.dtype]
        return DTYPE_BYTES[self.workload.tensors[buffer].dtype]


def hull(form: AffineForm, reach: dict[str, IntExpr]) -> IntExpr:
    """Extent of the hull of an affine index whose axes take ``reach`` consecutive values each."""
    result = const(1)
    for axis, coefficient in form.coefficients.items():
        result = result + (reach[axis] - 1) * abs(coefficient)
    return result


def is_axis(form: AffineForm) -> bool:
    """Whether the index is an axis itself."""
    return form.constant == 0 and list(form.coefficients.values()) == [1]


def clipped_hull(form: AffineForm, reach: dict[str, IntExpr], bound: IntExpr) -> IntExpr:
    """The hull, at most ``bound``; an axis by itself never passes its bound."""
    extent = hull(form, reach)
    return extent if is_axis(form) or not form.coefficients else minimum(extent, bound)


def unique(form: AffineForm, reach: dict[str, IntExpr]) -> IntExpr:
    """Number of distinct values of an affine index over one or two axes.

    For two axes with coprime coefficients ``a`` and ``b`` over ``T`` and ``K`` values, two points
    share a value exactly when they differ by ``(b, -a)``, so ``T*K`` points take
    ``T*K - max(T - b, 0) * max(K - a, 0)`` values. More axes: the hull, an upper bound.
    """
    terms = [(abs(c), reach[axis]) for axis, c in form.coefficients.items()]
    if not terms:
        return const(1)
    if len(terms) == 1:
        return terms[0][1]
    if len(terms) > 2:
        return hull(form, reach)
    (first, first_reach), (second, second_reach) = terms
    common = _gcd(first, second)
    a, b = first // common, second // common
    repeated = maximum(first_reach - b, 0) * maximum(second_reach - a, 0)
    return first_reach * second_reach - repeated


def _gcd(left: int, right: int) -> int:
    while right:
        left, right = right, left % right
    return left

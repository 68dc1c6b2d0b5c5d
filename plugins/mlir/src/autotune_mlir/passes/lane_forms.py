"""Vectors of indices as sums: a number, values of the program, and what lanes add."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import field, frozen

from autotune_mlir.importing.scalar_import import defining

__all__ = ["LaneForm", "lane_form", "source_dimensions"]

_LIMITS: Mapping[str, int] = MappingProxyType({"arith.maxsi": 1, "arith.minsi": -1})


@frozen
class LaneForm:
    """An index, or a vector of them.

    Attributes:
        constant: A number.
        terms: Factors of values of the program.
        lanes: By what one step along a dimension of the vector adds.
    """

    constant: int = 0
    terms: Mapping[Any, int] = field(factory=dict)
    lanes: Mapping[int, int] = field(factory=dict)

    def plus(self, other: LaneForm, factor: int = 1) -> LaneForm:
        """The sum of this and a multiple of another."""
        return LaneForm(
            self.constant + factor * other.constant,
            _added(self.terms, other.terms, factor),
            _added(self.lanes, other.lanes, factor),
        )

    def is_at_least(self, other: LaneForm) -> bool:
        """Whether each lane is known to be at least that of another."""
        rest = self.plus(other, -1)
        return not rest.terms and not rest.lanes and rest.constant >= 0

    def ends(self, shape: Sequence[int]) -> tuple[int, int]:
        """What the least and the largest of all lanes have more than the first."""
        spans = [step * (shape[at] - 1) for at, step in self.lanes.items()]
        return sum(it for it in spans if it < 0), sum(it for it in spans if it > 0)


def _added(left: Mapping[Any, int], right: Mapping[Any, int], factor: int) -> dict[Any, int]:
    found = dict(left)
    for key, scale in right.items():
        found[key] = found.get(key, 0) + factor * scale
    return {key: scale for key, scale in found.items() if scale}


def lane_form(
    value: Any,
    known: Callable[[LaneForm], bool] = lambda form: False,
    places: Mapping[int, int] | None = None,
) -> LaneForm | None:
    """An index, or a vector of them, as a sum; None where it is none.

    Args:
        value: The index.
        known: Whether a sum is known not to be negative in any lane: what is limited to more than
            it is at least is as if it was not.
        places: Which dimension of the sum each dimension of the vector is; of one lane, none. The
            same by default.
    """
    made, shape = defining(value), list(getattr(value.type, "shape", ()))
    if places is None:
        places = {at: at for at, extent in enumerate(shape) if extent > 1}
    if made is not None and made.name == "arith.constant":
        return _constant(made, is_vector=bool(shape))
    if made is not None and (made.name in _SUMS or made.name in _LIMITS):
        left, right = (lane_form(operand, known, places) for operand in made.operands)
        if left is None or right is None:
            return None
        if made.name in _SUMS:
            return _SUMS[made.name](left, right)
        more = LaneForm().plus(left.plus(right, -1), _LIMITS[made.name])
        return left if known(more) else None
    if not shape:
        return LaneForm(0, {value: 1})
    if made is None:
        return None
    if made.name == "vector.step":
        return LaneForm(0, {}, {places[0]: 1} if 0 in places else {})
    dimensions = source_dimensions(made)
    if dimensions is None:
        return None
    inner = {source: places[at] for source, at in dimensions.items() if at in places}
    return lane_form(made.operands[0], known, inner)


def _constant(made: Any, *, is_vector: bool) -> LaneForm | None:
    attribute = made.attributes["value"]
    if is_vector:
        return LaneForm(int(attribute.get_splat_value().value)) if attribute.is_splat else None
    return LaneForm(int(attribute.value))


def _product(left: LaneForm, right: LaneForm) -> LaneForm | None:
    for one, other in ((left, right), (right, left)):
        if not one.terms and not one.lanes:
            return LaneForm().plus(other, one.constant)
    return None


_SUMS: Mapping[str, Callable[[LaneForm, LaneForm], LaneForm | None]] = MappingProxyType(
    {
        "arith.addi": lambda left, right: left.plus(right),
        "arith.subi": lambda left, right: left.plus(right, -1),
        "arith.muli": _product,
    }
)


def source_dimensions(made: Any) -> dict[int, int] | None:
    """Which dimension of a vector each of the vector that it is made of is.

    Returns:
        Without those of one lane; None where it is not a vector in another form.
    """
    if made.name == "vector.transpose":
        order = [int(it) for it in made.attributes["permutation"]]
        return {source: at for at, source in enumerate(order)}
    if made.name not in ("vector.broadcast", "vector.shape_cast"):
        return None
    values = (made.operands[0], made.results[0])
    source, result = (list(getattr(it.type, "shape", ())) for it in values)
    if made.name == "vector.broadcast":
        before = len(result) - len(source)
        return {at: before + at for at, extent in enumerate(source) if extent > 1}
    inner, outer = ([at for at, n in enumerate(it) if n > 1] for it in (source, result))
    if [source[at] for at in inner] != [result[at] for at in outer]:
        return None
    return dict(zip(inner, outer, strict=True))

"""A call of an instruction: what it reads and adds to, where the loops around it are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import Binary, Cast, Constant, Load, ScalarExpr
from autotune.lower.concrete import ConcreteStatement
from autotune.lower.emitter import Value
from autotune.lower.linear import Digits, Linear
from autotune.lower.places import Place
from autotune.lower.state import State
from autotune.nest.corrections import SHIFT
from autotune.sketches.intrinsics import Intrinsic, IntrinsicOperand

__all__ = ["Call", "Operand", "call_of"]


@frozen(eq=False)
class Operand:
    """Memory that a call reads or updates.

    Attributes:
        place: Where it is.
        index: Of its elements, in the counters of all loops.
    """

    place: Place
    index: Linear


@frozen(eq=False)
class Call:
    """A statement as a call.

    Attributes:
        statement: What it computes, in loops.
        intrinsic: The declaration.
        left: The first factor; None: all of its elements are ``SHIFT``.
        right: The second factor.
        sums: What products are added to.
        is_shifted: Whether ``SHIFT`` is added to the elements of the first factor.
    """

    statement: ConcreteStatement
    intrinsic: Intrinsic
    left: Operand | None
    right: Operand
    sums: Operand
    is_shifted: bool = False

    @property
    def counters(self) -> dict[str, str]:
        """The loop of each axis of the declaration."""
        axes = self.intrinsic.axes
        loops = self.statement.loops[-len(axes) :]
        return {axis.name: loop.name for axis, loop in zip(axes, loops, strict=True)}

    @contextmanager
    def at(self, digits: Digits, **values: int) -> Iterator[None]:
        """At these values of the declaration's axes, the others at 0."""
        with ExitStack() as stack:
            for axis, counter in self.counters.items():
                stack.enter_context(digits.at(counter, values.get(axis, 0)))
            yield

    def address(self, operand: Operand, digits: Digits, **values: int) -> Linear:
        """The index of an element at these values of the declaration's axes."""
        with self.at(digits, **values):
            return digits.resolved(operand.index)

    def apart(self, operand: Operand, digits: Digits, axis: str, distance: int = 1) -> int:
        """Elements between two that are ``distance`` apart along an axis.

        Raises:
            UnsupportedWorkload: that depends on the loops around.
        """
        first = self.address(operand, digits)
        found = self.address(operand, digits, **{axis: distance}) - first
        if found.terms:
            raise UnsupportedWorkload(
                f"{operand.place.name!r} lies otherwise in every iteration, as calls of "
                f"{self.intrinsic.name!r} do not read it"
            )
        return found.constant


def call_of(state: State, statement: ConcreteStatement) -> Call:
    """The call that a statement's innermost loops are.

    Raises:
        UnsupportedWorkload: they compute something else, or read it otherwise.
    """
    intrinsic = statement.intrinsic
    assert intrinsic is not None
    loops = statement.loops[-len(intrinsic.axes) :]
    found, wanted = [it.extent for it in loops], [axis.extent for axis in intrinsic.axes]
    if found != wanted:
        raise UnsupportedWorkload(
            f"the innermost loops of {statement.name!r} have extents {found}, a call of "
            f"{intrinsic.name!r} has {wanted}"
        )
    write = statement.write
    forms = [state.digits.of_form(form, statement.axes) for form in write.forms]
    sums = _operand(state, statement, write.buffer, forms)
    first, second = (_factor(state, statement, side) for side in _product(statement, intrinsic))
    vector = loops[-1].name
    moves = [
        it[0] is not None and state.digits.depends(it[0].index, vector) for it in (first, second)
    ]
    if moves[0]:
        first, second = second, first
    right, is_shifted = second
    if right is None or is_shifted or all(moves) or not any(moves):
        raise UnsupportedWorkload(
            f"no factor of {statement.name!r} is the same for all lanes of {intrinsic.name!r}"
        )
    call = Call(statement, intrinsic, first[0], right, sums, first[1])
    _check_layouts(call, state.digits)
    return call


def _product(statement: ConcreteStatement, intrinsic: Intrinsic) -> tuple[ScalarExpr, ScalarExpr]:
    body = statement.body
    if not isinstance(body, Binary) or body.op != "mul":
        raise UnsupportedWorkload(
            f"{statement.name!r} is no product, as calls of {intrinsic.name!r} are"
        )
    return body.left, body.right


def _factor(
    state: State, statement: ConcreteStatement, node: ScalarExpr
) -> tuple[Operand | None, bool]:
    """The tensor that a factor is read from, and whether it is shifted."""
    if isinstance(node, Constant) and node.value == SHIFT:
        return None, False
    if isinstance(node, Binary) and node.op == "add":
        by = node.right
        if isinstance(by, Constant) and by.value == SHIFT:
            return _factor(state, statement, node.left)[0], True
    if isinstance(node, Cast):
        node = node.operand
    if not isinstance(node, Load):
        raise UnsupportedWorkload(f"{statement.name!r} multiplies more than elements")
    indices = [state.digits.of_expression(it, statement.axes) for it in node.indices]
    buffer = statement.source.sources.get(node.tensor, node.tensor)
    return _operand(state, statement, buffer, indices), False


def _operand(
    state: State, statement: ConcreteStatement, buffer: str, indices: Sequence[Linear]
) -> Operand:
    place = state.places[buffer]
    return Operand(place, state.address(statement, place, indices))


def _check_layouts(call: Call, digits: Digits) -> None:
    """Check that elements lie as the declaration says: nothing else would notice.

    Raises:
        UnsupportedWorkload: an operand has another type, or lies otherwise.
    """
    own = call.intrinsic
    pairs = [(call.right, own.right), (call.sums, own.result)]
    pairs += [(call.left, own.left)] if call.left is not None else []
    for operand, declared in pairs:
        if operand.place.dtype != declared.dtype:
            raise UnsupportedWorkload(
                f"{operand.place.name!r} is of {operand.place.dtype}, and calls of {own.name!r} "
                f"take {declared.dtype}"
            )
        for axis in own.axes:
            for distance, wanted in _steps(declared, axis.name):
                found = call.apart(operand, digits, axis.name, distance)
                if wanted not in (None, found):
                    raise UnsupportedWorkload(
                        f"{operand.place.name!r} has elements {found} apart along {axis.name!r}, "
                        f"and calls of {own.name!r} take them {wanted} apart"
                    )


def _steps(operand: IntrinsicOperand, axis: str) -> Iterator[tuple[int, int | None]]:
    """Steps along an axis, and elements between what they lead to; None: any number.

    Each dimension that an operand has of the axis is a step of its own.
    """
    parts, distance = operand.strides(axis), 1
    if not parts:
        yield 1, 0
    for number, (extent, stride) in reversed([*enumerate(parts)]):
        outermost = number == 0 and operand.layout[0][0] == axis
        if extent > 1:
            yield distance, None if operand.row_stride and outermost else stride
        distance *= extent


def known(state: State, place: Place, at: Linear, lanes: int) -> Value:
    """Neighbouring elements, loaded once as long as memory holds the same."""
    key = (place.name, at, f"{lanes} lanes")
    if key not in state.loaded:
        state.loaded[key] = state.emitter.load(place, at, lanes)
    return state.loaded[key]

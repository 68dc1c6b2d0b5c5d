"""The scalar expression of a stage, printed for one point or for all lanes at once."""

from __future__ import annotations

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
)
from autotune.ir.expressions.scalar import reads
from autotune.lower.concrete import ConcreteStatement
from autotune.lower.conditions import Below, comparison, decided, is_negated
from autotune.lower.emitter import Value
from autotune.lower.linear import Linear
from autotune.lower.memory import is_square, load, load_chosen
from autotune.lower.places import Place
from autotune.lower.quotients import divided
from autotune.lower.state import State

__all__ = ["below", "computed", "place_of", "read_at", "reads_square", "truth"]


def computed(
    state: State, statement: ConcreteStatement, node: ScalarExpr, mask: Value | None = None
) -> Value:
    """The value of a body where the loops are; lanes outside a mask may be anything.

    Raises:
        UnsupportedWorkload: it reads in a way that is not printed.
    """
    emitter = state.emitter

    def part(inner: ScalarExpr) -> Value:
        return computed(state, statement, inner, mask)

    if id(node) in state.held:
        return state.held[id(node)].here(state.digits)
    if isinstance(node, Constant):
        return emitter.constant(node.value, node.dtype)
    if isinstance(node, Load):
        at = read_at(state, statement, node)
        if at is not None:
            return load(state, place_of(state, statement, node.tensor), at, mask)
        return _gathered(
            state, statement, Gather(node.tensor, tuple(map(IndexValue, node.indices))), mask
        )
    if isinstance(node, Gather):
        return _gathered(state, statement, node, mask)
    if isinstance(node, IndexValue):
        return _number(state, statement, node.index)
    if isinstance(node, Cast):
        return _converted(state, part(node.operand), node.dtype)
    if isinstance(node, Unary):
        return emitter.unary(node.op, part(node.operand))
    if isinstance(node, Select):
        return _selected(state, statement, node, mask)
    left = part(node.left)
    known = state.divisors.get(id(node.right)) if node.op == "div" else None
    if known is not None and left.dtype == "float32" and left.lanes > 1:
        return divided(emitter, left, known.here(state.digits))
    right = part(node.right)
    common = _common(left.dtype, right.dtype)
    left, right = emitter.cast(left, common), emitter.cast(right, common)
    if mask is not None and node.op in ("div", "mod") and not element_type(common).is_float:
        # What a lane outside of the mask has read is 0, at which processors stop.
        right = emitter.select(mask, right, emitter.constant(1, common))
    if node.op == "div":
        return divided(emitter, left, right)
    return emitter.binary(node.op, left, right)


def reads_square(state: State, statement: ConcreteStatement, node: ScalarExpr) -> bool:
    """Tell whether a body is an element of a square that can be read wherever the place ends."""
    if not isinstance(node, Load):
        return False
    at = read_at(state, statement, node)
    return at is not None and is_square(state, place_of(state, statement, node.tensor), at)


def read_at(state: State, statement: ConcreteStatement, node: Load) -> Linear | None:
    """The place of the element that a load reads; None where an index is no form."""
    return state.once(statement, node, lambda: _address(state, statement, node))


def _converted(state: State, value: Value, dtype: str) -> Value:
    """A value converted; a ``float16`` that all lanes use is converted in all of them.

    Processors broadcast 16 bits from memory, but read a single half into a part of a register,
    and wait for what was in the rest of it.
    """
    if value.dtype == "float16" and state.lanes > 1:
        value = state.emitter.wide(value, state.lanes)
    return state.emitter.cast(value, dtype)


def _common(left: str, right: str) -> str:
    """The type in which numbers of two types are combined: floats before integers, then size."""
    if left == right:
        return left
    types = element_type(left), element_type(right)
    return max(types, key=lambda it: (it.is_float, it.bytes, it.name)).name


def place_of(state: State, statement: ConcreteStatement, tensor: str) -> Place:
    """The place that serves a statement's reads of a tensor."""
    return state.places[statement.source.sources.get(tensor, tensor)]


def _address(state: State, statement: ConcreteStatement, node: Load) -> Linear | None:
    indices = [_linear(state, statement, index) for index in node.indices]
    known = [index for index in indices if index is not None]
    if len(known) < len(indices):
        return None
    return state.address(statement, place_of(state, statement, node.tensor), known)


def _linear(state: State, statement: ConcreteStatement, index: IntExpr) -> Linear | None:
    """An index as a form over digits; None where it is none."""
    try:
        return state.digits.of_expression(index, statement.axes)
    except UnsupportedWorkload:
        return None


def _number(state: State, statement: ConcreteStatement, index: IntExpr) -> Value:
    """An index expression as a number, computed where it is no form over digits."""
    linear = _linear(state, statement, index)
    if linear is not None:
        return _index(state, linear)
    emitter, op = state.emitter, index.op
    first, *others = (_number(state, statement, it) for it in index.args)
    if op == "select":
        chosen = emitter.binary("ne", first, emitter.constant(0, "int64"))
        return emitter.select(chosen, *others)
    if op == "less":
        return emitter.cast(emitter.binary("lt", first, others[0]), "int64")
    if op == "floordiv":
        rest = emitter.binary("mod", first, others[0])
        return emitter.binary("div", emitter.binary("sub", first, rest), others[0])
    for other in others:
        first = emitter.binary(op, first, other)
    return first


def _index(state: State, index: Linear) -> Value:
    """A form over digits as a number."""
    form = state.digits.resolved(index)
    if state.lane is None or not state.digits.depends(form, state.lane[0]):
        return state.emitter.integer(form)
    lane, lanes = state.lane
    if state.digits.is_apart(form, lane):
        return state.emitter.ramp(form.without(lane), form.coefficient(lane), lanes)
    values = []
    for number in range(lanes):
        with state.digits.at(lane, number):
            values.append(state.emitter.integer(state.digits.resolved(index)))
    return state.emitter.gathered(values)


def _gathered(
    state: State, statement: ConcreteStatement, node: Gather, mask: Value | None
) -> Value:
    """An element at indices that the program computes."""
    place = state.places[statement.source.sources.get(node.tensor, node.tensor)]
    emitter = state.emitter
    if not place.is_plain or place.depth:
        raise UnsupportedWorkload(f"a copy of {node.tensor!r} is read where data says")
    fixed, offset = Linear(), emitter.constant(0, "int64")
    for index, stride in zip(node.indices, place.strides, strict=True):
        own = None
        if isinstance(index, IndexValue):
            own = _linear(state, statement, index.index)
        if own is not None:
            fixed = fixed + own * stride
            continue
        chosen = emitter.cast(computed(state, statement, index, mask), "int64")
        step = emitter.constant(stride, "int64")
        offset = emitter.binary("add", offset, emitter.binary("mul", chosen, step))
    if offset.lanes == 1:
        return load_chosen(state, place, fixed, offset)
    values = []
    lane, lanes = state.lane or ("", 1)
    with state.in_lanes(None):
        for number in range(lanes):
            with state.digits.at(lane, number):
                at, chosen = state.digits.resolved(fixed), emitter.lane(offset, number)
                if mask is not None:
                    # What is not to be read may be anywhere: the first element is there.
                    there = emitter.binary("add", emitter.integer(at), chosen)
                    taken = emitter.lane(mask, number) if mask.lanes > 1 else mask
                    nothing = emitter.constant(0, "int64")
                    at, chosen = Linear(), emitter.select(taken, there, nothing)
                values.append(emitter.load_chosen(place, at, chosen, 1))
    return emitter.gathered(values)


def _selected(
    state: State, statement: ConcreteStatement, node: Select, mask: Value | None
) -> Value:
    """A choice; what is not chosen is not read."""
    emitter, known = state.emitter, decided(node.condition, dict(statement.axes), state.digits)
    if known is not None:
        return computed(state, statement, node.on_true if known else node.on_false, mask)
    condition = truth(state, statement, node.condition, mask)
    if not reads(node.on_true) and not reads(node.on_false):
        return _either(
            state,
            condition,
            computed(state, statement, node.on_true, mask),
            computed(state, statement, node.on_false, mask),
        )
    if condition.lanes == 1:
        return _branched(state, statement, node, condition, mask)
    contrary = emitter.negated(condition)
    if mask is not None:
        condition_here = emitter.binary("and", condition, mask)
        contrary = emitter.binary("and", contrary, mask)
    else:
        condition_here = condition
    yes = computed(state, statement, node.on_true, condition_here)
    no = computed(state, statement, node.on_false, contrary)
    return _either(state, condition, yes, no)


def _either(state: State, condition: Value, yes: Value, no: Value) -> Value:
    common = _common(yes.dtype, no.dtype)
    emitter = state.emitter
    return emitter.select(condition, emitter.cast(yes, common), emitter.cast(no, common))


def _branched(
    state: State,
    statement: ConcreteStatement,
    node: Select,
    condition: Value,
    mask: Value | None,
) -> Value:
    """A choice by a scalar: one side is run."""
    lanes, dtype = state.lanes, _dtype(state, statement, node)

    def side(body: ScalarExpr) -> Value:
        with state.aside():
            value = state.emitter.cast(computed(state, statement, body, mask), dtype)
            return state.emitter.wide(value, lanes)

    return state.emitter.choose(condition, lambda: side(node.on_true), lambda: side(node.on_false))


def _dtype(state: State, statement: ConcreteStatement, node: ScalarExpr) -> str:
    """The type of a body's value."""
    if isinstance(node, (Constant, Cast)):
        return node.dtype
    if isinstance(node, (Load, Gather)):
        return state.places[statement.source.sources.get(node.tensor, node.tensor)].dtype
    if isinstance(node, IndexValue):
        return "int64"
    if isinstance(node, Unary):
        return "bool" if node.op == "not" else _dtype(state, statement, node.operand)
    if isinstance(node, Select):
        sides = (node.on_true, node.on_false)
    elif node.op in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or"):
        return "bool"
    else:
        sides = (node.left, node.right)
    left, right = (_dtype(state, statement, side) for side in sides)
    return _common(left, right)


def truth(
    state: State, statement: ConcreteStatement, node: ScalarExpr, mask: Value | None = None
) -> Value:
    """A condition, its parts on indices as scalars where they are the same for all lanes."""
    if not isinstance(node, Binary):
        return computed(state, statement, node, mask)
    if node.op in ("and", "or"):
        known = [decided(it, dict(statement.axes), state.digits) for it in (node.left, node.right)]
        for one, other in ((0, node.right), (1, node.left)):
            if known[one] is (node.op == "and"):
                return truth(state, statement, other, mask)
        left = truth(state, statement, node.left, mask)
        right = truth(state, statement, node.right, mask)
        return state.emitter.binary(node.op, left, right)
    found = _compared(state, statement, node)
    return computed(state, statement, node, mask) if found is None else found


def _compared(state: State, statement: ConcreteStatement, node: Binary) -> Value | None:
    """A comparison of indices as a scalar or a mask; None if it compares anything else."""
    found = comparison(node, dict(statement.axes), state.digits)
    if found is None:
        return None
    value = below(state, found)
    return state.emitter.negated(value) if is_negated(node) else value


def below(state: State, condition: Below) -> Value:
    """A condition on an index: a scalar where it is the same for all lanes, else a mask.

    Raises:
        UnsupportedWorkload: lanes are compared by a quotient or remainder.
    """
    form = state.digits.resolved(condition.form)
    if state.lane is None:
        return state.emitter.below(form)
    lane, lanes = state.lane
    same = condition.without(lane, lanes, state.digits)
    if same is not None:
        return state.emitter.below(same.form)
    if not state.digits.is_apart(form, lane):
        zero = state.emitter.constant(0, "int64")
        return state.emitter.binary("lt", _index(state, form), zero)
    return state.emitter.below(form.without(lane), form.coefficient(lane), lanes)

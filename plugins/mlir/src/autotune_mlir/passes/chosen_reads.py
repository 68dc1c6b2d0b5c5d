"""Elements that are read from one of two tensors, by the place that they are at.

A stage that reads two tensors beside each other computes both elements, at places that are limited
to what each tensor has, and chooses one. Of vectors these are gathers. All lanes of most vectors
choose the same: for those there is a branch in which that tensor is read alone, where it is, and
its elements follow each other in memory. In the others each tensor is read under a mask. Where
lanes do not differ, as those of a transposed tensor, there are two branches, also for what is
gathered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import frozen

from autotune_mlir.importing.scalar_import import defining
from autotune_mlir.passes.lane_forms import LaneForm, lane_form, source_dimensions
from autotune_mlir.passes.neighbouring_lanes import (
    GATHER,
    flattened,
    is_dense,
    is_true,
    lane_dimension,
    replace_by_rows,
)
from autotune_mlir.passes.vector_maker import VectorMaker, constant_of
from autotune_mlir.traversal import constant_index, operations_in, users_of

__all__ = ["separate_choices"]

_SELECT = "arith.select"
# Of arith.cmpi by its predicate: what makes of `left - right` a sum that is not negative where it
# is true, a factor and a number that is added.
_COMPARISONS = MappingProxyType({2: (-1, -1), 3: (-1, 0), 4: (1, -1), 5: (1, 0)})
_LESS, _AT_LEAST = 2, 5
_MOST_OPERATIONS = 64


def separate_choices(ir: Any, module: Any, least_masked_bits: int) -> None:
    """Read by itself what all lanes of a vector choose.

    Args:
        ir: The ``ir`` module of the bindings; the context is the current one.
        module: The program, on buffers.
        least_masked_bits: Bits of the narrowest elements that the processor has masks for.
    """
    blocks: list[Any] = []
    for operation in operations_in(module.operation):
        if operation.name == GATHER and operation.block not in blocks:
            blocks.append(operation.block)
    for block in blocks:
        _Separation(ir, least_masked_bits).of_block(block)


@frozen
class _Choice:
    """A vector of which each lane is chosen from two by its place.

    Attributes:
        select: The operation.
        form: Not negative where the first is chosen.
    """

    select: Any
    form: LaneForm

    @property
    def otherwise(self) -> LaneForm:
        """Not negative where the second is chosen."""
        return LaneForm(-1).plus(self.form, -1)

    @property
    def facts(self) -> tuple[LaneForm, LaneForm]:
        """What is not negative where the first, and where the second is chosen."""
        return self.form, self.otherwise


Facts = tuple[LaneForm, ...]


@frozen
class _Separation:
    """Makes branches."""

    ir: Any
    least_masked_bits: int

    def of_block(self, block: Any) -> None:
        """Separate the choices of a block, the last one first: others are what it chooses from."""
        left_alone = 0
        while True:
            selects = [it.operation for it in block.operations if it.operation.name == _SELECT]
            if left_alone == len(selects):
                return
            choice = _choice_of(self.ir, selects[-1 - left_alone])
            separated = choice is not None and self.branch(choice, ())
            left_alone = 0 if separated else left_alone + 1

    def branch(self, choice: _Choice, facts: Facts) -> bool:
        """Make branches of a choice, where these sums are not negative in any lane, if it pays."""
        span = _span_of(choice)
        low, high = choice.form.ends(choice.select.results[0].type.shape)
        sides = zip(list(choice.select.operands)[1:], choice.facts, strict=True)
        if low == high:
            pays = any(_sources(value)[1] for value, _ in sides)
        else:
            pays = any(_reads(self.ir, value, (*facts, fact)) for value, fact in sides)
        if not pays:
            return False
        if len(span) > _MOST_OPERATIONS or any(len(it.regions) for it in span):
            return False
        results = [value for it in span for value in it.results]
        if any(value in results for value in choice.form.terms):
            return False
        handed = [it for it in results if any(user not in span for user in users_of(it))]
        ir, form = self.ir, choice.form
        with ir.InsertionPoint(span[0]), span[0].location:
            first = _value_of(ir, LaneForm(form.constant, form.terms))
            every, none = (
                _compared(ir, first, predicate, -least)
                for predicate, least in ((_AT_LEAST, low), (_LESS, high))
            )
            made = self._if(every, [value.type for value in handed])
        on_true, on_false = made.regions
        with ir.InsertionPoint(ir.Block.create_at_start(on_true, [])), span[0].location:
            self._copy(choice, span, handed, (*facts, form), 1)
        with ir.InsertionPoint(ir.Block.create_at_start(on_false, [])), span[0].location:
            if low == high:
                self._copy(choice, span, handed, (*facts, choice.otherwise), 2)
            else:
                self._others(choice, span, handed, facts, none)
        for value, chosen in zip(handed, made.results, strict=True):
            value.replace_all_uses_with(chosen)
        for operation in reversed(span):
            operation.erase()
        return True

    def _if(self, condition: Any, kinds: Sequence[Any]) -> Any:
        return self.ir.Operation.create("scf.if", list(kinds), [condition], regions=2)

    def _others(
        self, choice: _Choice, span: Sequence[Any], handed: Sequence[Any], facts: Facts, none: Any
    ) -> None:
        """Branches for where no lane chooses the first, and for where some do."""
        ir = self.ir
        made = self._if(none, [value.type for value in handed])
        with ir.InsertionPoint(ir.Block.create_at_start(made.regions[0], [])):
            self._copy(choice, span, handed, (*facts, choice.otherwise), 2)
        with ir.InsertionPoint(ir.Block.create_at_start(made.regions[1], [])):
            self._copy(choice, span, handed, facts, None)
        ir.Operation.create("scf.yield", [], list(made.results))

    def _copy(
        self,
        choice: _Choice,
        span: Sequence[Any],
        handed: Sequence[Any],
        facts: Facts,
        side: int | None,
    ) -> None:
        """A copy of operations at the insertion point, with a choice made.

        Args:
            choice: The choice.
            span: The operations.
            handed: Values that they are read for.
            facts: What is not negative in any lane here.
            side: Which operand of the choice all lanes choose; None where lanes differ.
        """
        ir = self.ir
        copies: dict[Any, Any] = {}
        for operation in span:
            if side is not None and operation == choice.select:
                value = operation.operands[side]
                copies[operation.results[0]] = copies.get(value, value)
                continue
            copy = operation.clone()
            for at, operand in enumerate(operation.operands):
                if operand in copies:
                    copy.operands[at] = copies[operand]
            copies.update(zip(operation.results, copy.results, strict=True))
        block = ir.InsertionPoint.current.block
        ir.Operation.create("scf.yield", [], [copies[value] for value in handed])
        total = copies[choice.select.results[0]]
        if side is None:
            self._mask(_Choice(total.owner.operation, choice.form), facts)
            return
        self._read(total, facts)
        _drop_unused(block)
        self.of_block(block)

    def _read(self, value: Any, facts: Facts) -> None:
        """Load what a value is gathered of, and make branches of what it is chosen from."""
        selects, gathers = _sources(value)
        for gather in gathers:
            form = _loadable(self.ir, gather, facts)
            if form is not None:
                _load(self.ir, gather, form, None)
        for select in selects:
            choice = _choice_of(self.ir, select)
            if choice is not None:
                self.branch(choice, facts)

    def _mask(self, choice: _Choice, facts: Facts) -> None:
        """Load what each lane chooses under a mask."""
        ir, select = self.ir, choice.select
        condition = select.operands[0]
        if _bits(select.results[0].type) < self.least_masked_bits:
            return
        for at, fact in enumerate(choice.facts, 1):
            gather = defining(select.operands[at])
            if gather is None or gather.name != GATHER:
                continue
            form = _loadable(ir, gather, (*facts, fact))
            if form is None or not _is_undisturbed(gather, select):
                continue
            with ir.InsertionPoint(select), select.location:
                mask = condition if at == 1 else _negated(ir, condition)
            _load(ir, gather, form, mask, at=select)


def _choice_of(ir: Any, select: Any) -> _Choice | None:
    """The choice that an operation makes by the places of lanes."""
    condition = select.operands[0]
    if not isinstance(select.results[0].type, ir.VectorType):
        return None
    shape = list(select.results[0].type.shape)
    places = {at: at for at, extent in enumerate(shape) if extent > 1}
    form = _condition_form(ir, condition, places)
    return None if form is None else _Choice(select, form)


def _condition_form(ir: Any, condition: Any, places: Mapping[int, int]) -> LaneForm | None:
    """A sum that is not negative where a comparison of indices is true, and only there."""
    made = defining(condition)
    if made is None:
        return None
    dimensions = source_dimensions(made)
    if dimensions is not None:
        inner = {source: places[at] for source, at in dimensions.items() if at in places}
        return _condition_form(ir, made.operands[0], inner)
    if made.name != "arith.cmpi":
        return None
    kind = made.operands[0].type
    if getattr(kind, "element_type", kind) != ir.IndexType.get():
        return None
    left, right = (lane_form(operand, places=places) for operand in made.operands)
    comparison = _COMPARISONS.get(int(made.attributes["predicate"].value))
    if comparison is None or left is None or right is None:
        return None
    factor, number = comparison
    return LaneForm(number).plus(left.plus(right, -1), factor)


def _sources(value: Any) -> tuple[list[Any], list[Any]]:
    """Choices and gathers that a vector is computed of, lane by lane, and nothing behind them."""
    made = defining(value)
    if made is None or not made.name.startswith("arith."):
        return [], [made] if made is not None and made.name == GATHER else []
    if made.name == _SELECT:
        return [made], []
    found = [_sources(operand) for operand in made.operands]
    return [it for one, _ in found for it in one], [it for _, one in found for it in one]


def _reads(ir: Any, value: Any, facts: Facts) -> bool:
    """Whether something is loaded of what a value is computed of."""
    return any(_loadable(ir, gather, facts) is not None for gather in _sources(value)[1])


def _span_of(choice: _Choice) -> list[Any]:
    """The operations from the first that gathers for a choice to the last that needs it."""
    block = choice.select.block
    order = [view.operation for view in block.operations]
    behind, waiting = [choice.select], [choice.select]
    while waiting:
        for value in waiting.pop().results:
            for user in users_of(value):
                if user.block == block and user not in behind and user != order[-1]:
                    behind.append(user)
                    waiting.append(user)
    before, ahead = [choice.select], [choice.select]
    while ahead:
        for operand in ahead.pop().operands:
            made = defining(operand)
            if made is not None and made.block == block and made not in before:
                before.append(made)
                ahead.append(made)
    gathers = [order.index(it) for it in before if it.name == GATHER]
    last = max(order.index(it) for it in behind)
    return order[min(gathers, default=last) : last + 1]


def _loadable(ir: Any, gather: Any, facts: Facts) -> LaneForm | None:
    """Where the lanes of a gather are in its buffer, if they follow each other there."""
    buffer, *offsets, indices, mask, _ = gather.operands
    if not is_dense(ir, buffer.type) or not is_true(ir, mask):
        return None
    if any(constant_index(offset) != 0 for offset in offsets):
        return None
    form = lane_form(indices, lambda more: any(more.is_at_least(fact) for fact in facts))
    at = lane_dimension(gather.results[0].type)
    return form if form is not None and at is not None and form.lanes.get(at) == 1 else None


def _load(ir: Any, gather: Any, form: LaneForm, mask: Any | None, at: Any = None) -> None:
    """Loads in place of a gather, one for each place along the dimensions outside of lanes."""
    kind, make = gather.results[0].type, VectorMaker(ir)
    with ir.InsertionPoint(gather if at is None else at), gather.location:
        elements = flattened(ir, gather.operands[0])
        start = _value_of(ir, LaneForm(form.constant, form.terms))

        def loaded(outer: tuple[int, ...]) -> Any:
            count = kind.shape[len(outer)]
            moved = sum(form.lanes.get(at, 0) * place for at, place in enumerate(outer))
            if mask is None:
                return make.loaded(elements, start, moved, count)
            part = make.shaped(make.extracted(mask, outer), [count])
            return make.loaded_masked(elements, start, moved, part)

        replace_by_rows(ir, gather, loaded)


def _is_undisturbed(gather: Any, select: Any) -> bool:
    """Whether a choice is all that uses what is gathered, and nothing is written in between."""
    order = [view.operation for view in select.block.operations]
    between = order[order.index(gather) : order.index(select)]
    is_written = any(len(it.regions) or not len(it.results) for it in between)
    return users_of(gather.results[0]) == [select] and not is_written


def _value_of(ir: Any, form: LaneForm) -> Any:
    """The value of a sum without lanes, at the insertion point."""
    make = VectorMaker(ir)
    terms = list(form.terms.items())
    return make.sum_of([value for value, _ in terms], [it for _, it in terms], form.constant)


def _compared(ir: Any, index: Any, predicate: int, number: int) -> Any:
    """An index compared with a number, at the insertion point."""
    kind, bit = ir.IndexType.get(), ir.IntegerType.get_signless(1)
    attributes = {"value": ir.IntegerAttr.get(kind, number)}
    limit = ir.Operation.create("arith.constant", [kind], attributes=attributes).results[0]
    integer = ir.IntegerType.get_signless(64)
    how = {"predicate": ir.IntegerAttr.get(integer, predicate)}
    return ir.Operation.create("arith.cmpi", [bit], [index, limit], how).results[0]


def _negated(ir: Any, condition: Any) -> Any:
    every = constant_of(ir, condition.type, ir.BoolAttr.get(True))
    create = ir.Operation.create
    return create("arith.xori", [condition.type], [condition, every]).results[0]


def _bits(kind: Any) -> int:
    return int(getattr(kind.element_type, "width", 64))


def _drop_unused(block: Any) -> None:
    """Drop operations of a block that only compute, and of which nothing is read."""
    for operation in reversed([view.operation for view in block.operations]):
        is_pure = operation.name.startswith("arith.") or source_dimensions(operation) is not None
        is_read = any(True for value in operation.results for _ in value.uses)
        if not is_read and (is_pure or operation.name == GATHER):
            operation.erase()

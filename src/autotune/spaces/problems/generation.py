"""The constraint problem of a sketch, with the step that each constraint follows from."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from attrs import field, frozen

from autotune.ir.element_types import element_type
from autotune.ir.expressions import IntExpr, const, var
from autotune.nest import Buffer, LoopNest, derive_nest
from autotune.sketches import AtLeast as LowerBound
from autotune.sketches import AtMost as UpperBound
from autotune.sketches import Constraint as SketchConstraint
from autotune.sketches import ProductEquals as SketchProduct
from autotune.sketches import Sketch, Step
from autotune.sketches.steps import step_name
from autotune.spaces.feasible.terms import Range, expression_range
from autotune.spaces.problems.problem import ConstraintProblem
from autotune.spaces.problems.vocabulary import (
    AtLeast,
    AtMost,
    Constraint,
    Divides,
    Domain,
    Equal,
    IntRange,
    Member,
    Origin,
    Product,
    Sum,
    Variable,
)

__all__ = ["problem_of"]


def problem_of(sketch: Sketch) -> ConstraintProblem:
    """The constraints that a sketch's steps and its target put on its parameters.

    Variables are the parameters, extents of loops and sides of buffers that are sums or products
    of parameters, and the bytes of every buffer that the steps allocate, with the halo of what is
    read at a distance. Where the sketch bounds a quantity that has a name, the bound is on the
    name. The solutions are the feasible configurations of the sketch, one to one.
    """
    nest = derive_nest(sketch)
    draft = _Draft(sketch)
    draft.add_parameters()
    for constraint in sketch.constraints:
        if isinstance(constraint, SketchProduct):
            draft.add_product(constraint)
    draft.add_buffers(nest)
    draft.add_loops(nest)
    for constraint in sketch.constraints:
        if not isinstance(constraint, SketchProduct):
            draft.add_bound(constraint)
    return ConstraintProblem(sketch.name, tuple(draft.variables), tuple(draft.constraints))


@frozen(eq=False)
class _Draft:
    """The problem in the making; ``named`` are quantities that have a variable."""

    sketch: Sketch
    variables: list[Variable] = field(factory=list)
    constraints: list[Constraint] = field(factory=list)
    named: dict[IntExpr, IntExpr] = field(factory=dict)
    steps_of: dict[IntExpr, str] = field(factory=dict)

    def add_parameters(self) -> None:
        for param in self.sketch.params:
            values = param.values
            domain: Domain = IntRange(1, self._largest(param.name)) if values is None else values
            self.variables.append(Variable(param.name, domain))

    def add_product(self, constraint: SketchProduct) -> None:
        """A split of a loop, perhaps of a padded one."""
        names = set(constraint.factors)
        step = next((step for step in self.sketch.steps if names <= _used(step)), None)
        origin = Origin(constraint.source, "" if step is None else _step_text(step))
        factors = tuple(var(name) for name in constraint.factors)
        self.constraints.append(Product(constraint.total, factors, origin=origin))

    def add_buffers(self, nest: LoopNest) -> None:
        """Bytes of every buffer, and of all buffers of a scope where there are several."""
        scopes: dict[str, list[IntExpr]] = {}
        for buffer in nest.buffers:
            bytes_of = self._buffer(buffer)
            scopes.setdefault(buffer.scope, []).append(bytes_of)
        for scope, parts in scopes.items():
            total = sum((self._meaning(part) for part in parts), const(0))
            if len(parts) > 1 and total not in self.named:
                name = self._define(f"{scope} memory", total, "memory")
                origin = Origin("buffers", f"all of scope {scope}")
                self.constraints.append(Sum(name, tuple(parts), origin=origin))

    def add_loops(self, nest: LoopNest) -> None:
        """Extents of loops that are neither constants nor parameters."""
        for statement in nest.statements:
            for loop in statement.loops:
                known = loop.extent in self.named or loop.extent.op in ("const", "var")
                if not known:
                    step = next(
                        (_step_text(s) for s in self.sketch.steps if _splits(s, loop.extent)),
                        _deciding_step(self.sketch, loop.extent),
                    )
                    self._side(f"{statement.name} loop {loop.name}", loop.extent, step)

    def add_bound(self, constraint: SketchConstraint) -> None:
        """A limit, a membership or a divisibility."""
        assert not isinstance(constraint, SketchProduct)
        expression = constraint.expression
        step = self.steps_of.get(expression) or _deciding_step(self.sketch, expression)
        origin = Origin(constraint.source, step, constraint.hard)
        subject = self.named.get(expression, expression)
        made: Constraint
        if isinstance(constraint, UpperBound):
            made = AtMost(subject, const(constraint.limit), origin=origin)
        elif isinstance(constraint, LowerBound):
            made = AtLeast(subject, const(constraint.limit), origin=origin)
        elif (
            constraint.values == (0,) and expression.op == "mod" and _positive(expression.args[1])
        ):
            made = Divides(expression.args[1], expression.args[0], origin=origin)
        elif len(constraint.values) == 1:
            made = Equal(subject, const(constraint.values[0]), origin=origin)
        else:
            made = Member(subject, constraint.values, origin=origin)
        self.constraints.append(made)

    def _buffer(self, buffer: Buffer) -> IntExpr:
        step = _allocating_step(self.sketch, buffer)
        sides = [
            self._side(f"{buffer.name} side {position}", extent, step)
            for position, extent in enumerate(buffer.extents)
        ]
        if buffer.bytes in self.named:
            return self.named[buffer.bytes]
        name = self._define(f"{buffer.name} bytes", buffer.bytes, "memory")
        self.steps_of.setdefault(buffer.bytes, step)
        factors = (*sides, const(element_type(buffer.dtype).bytes))
        self.constraints.append(Product(name, factors, origin=Origin("allocation", step)))
        return name

    def _side(self, name: str, extent: IntExpr, step: str) -> IntExpr:
        """A variable for a product, a sum, or anything else that is not known already."""
        if extent in self.named:
            return self.named[extent]
        if extent.op in ("const", "var"):
            return extent
        variable = self._define(name, extent, "extent")
        origin = Origin("loop nest", step)
        if extent.op == "mul":
            made: Constraint = Product(variable, extent.args, origin=origin)
        elif extent.op == "add":
            made = Sum(variable, extent.args, origin=origin)
        else:
            made = Equal(variable, extent, origin=origin)
        self.constraints.append(made)
        return variable

    def _define(self, name: str, expression: IntExpr, kind: str) -> IntExpr:
        self.variables.append(Variable(name, IntRange(*self._range(expression)), kind))
        self.named[expression] = var(name)
        return var(name)

    def _range(self, expression: IntExpr) -> Range:
        """The range of a quantity over all parameters."""
        ranges = {}
        for variable in self.variables:
            if variable.kind == "parameter":
                domain = variable.domain
                ranges[variable.name] = (
                    (domain.low, domain.high)
                    if isinstance(domain, IntRange)
                    else (min(domain), max(domain))
                )
        return expression_range(expression, ranges)

    def _meaning(self, name: IntExpr) -> IntExpr:
        """Meaning of a named quantity in terms of parameters."""
        return next((made for made, given in self.named.items() if given == name), name)

    def _largest(self, name: str) -> int:
        """The upper bound of a factor without values: the product that it is in."""
        by_name = {param.name: param.values for param in self.sketch.params}
        found = [1]
        for constraint in self.sketch.constraints:
            if isinstance(constraint, SketchProduct) and name in constraint.factors:
                total = constraint.total
                known = by_name[total.args[0]] if total.op == "var" else (total.value,)
                found.extend(value for value in known or () if value is not None)
        return max(found)


def _used(step: Step) -> set[str]:
    """Parameters that a step's own expressions depend on."""
    found: set[str] = set()
    for expression in _expressions(step):
        found |= expression.variables
    return found


def _loops(step: Step) -> set[str]:
    """Parameters that are the extents of the loops that a step names."""
    loops = (*getattr(step, "loops", ()), getattr(step, "loop", None))
    return {f"{step.stage}.{loop}" for loop in loops if loop is not None}


def _expressions(step: Step) -> Iterable[IntExpr]:
    for attribute in attrs.fields(type(step)):
        value = getattr(step, attribute.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, IntExpr):
                yield item


def _splits(step: Step, extent: IntExpr) -> bool:
    """Return whether one of a step's expressions is this extent."""
    return any(expression == extent for expression in _expressions(step))


def _step_text(step: Step) -> str:
    """The step's name and what it is applied to."""
    subject = [
        str(getattr(step, name))
        for name in ("stage", "axis", "operand", "loop", "at")
        if getattr(step, name, None) is not None
    ]
    return " ".join([step_name(step), *subject])


def _allocating_step(sketch: Sketch, buffer: Buffer) -> str:
    """The step that makes a buffer: packs or fetches an operand, or keeps a stage's tile."""
    for step in sketch.steps:
        kind = step_name(step)
        operand, stage = getattr(step, "operand", None), getattr(step, "stage", "")
        if kind in ("pack", "fetch") and buffer.name.startswith(f"{operand}."):
            return _step_text(step)
        if kind in ("accumulate", "fuse_producer") and buffer.name.partition(".")[0] == stage:
            return _step_text(step)
    return ""


def _deciding_step(sketch: Sketch, expression: IntExpr) -> str:
    """The step that is about the most of an expression's parameters, and about the fewest others.

    Of several the last one; "" where no step is about any.
    """
    wanted, best, text = expression.variables, 0.0, ""
    for step in sketch.steps:
        about = _used(step) | _loops(step)
        share = len(about & wanted) / max(1, len(about | wanted))
        if share and share >= best:
            best, text = share, _step_text(step)
    return text


def _positive(expression: IntExpr) -> bool:
    return expression.op == "var" or (expression.value or 0) > 0

"""Constraint problems of sketches, also as text, and why one has no solution."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import attrs
from attrs import evolve, field, frozen

from autotune.errors import InvalidValueError
from autotune.ir.converter import to_json
from autotune.ir.element_types import element_type
from autotune.ir.expressions import IntExpr, const, product, var
from autotune.nest import Buffer, LoopNest, derive_nest
from autotune.sketches import AtLeast, AtMost, Constraint, ProductEquals, Sketch, Step
from autotune.sketches.steps import step_name
from autotune.spaces.feasible import Range, Ranges, build_feasible_set

__all__ = [
    "ConstraintProblem",
    "ContradictoryConstraints",
    "Demand",
    "Domain",
    "Variable",
    "describe_problem",
    "problem_of",
    "require_solutions",
    "smallest_conflict",
]

_SHOWN = 8

Domain = tuple[int, ...] | range
"""Values that are listed, or an interval."""


@frozen
class Variable:
    """An integer of a problem.

    Attributes:
        name: Unique within a problem.
        kind: ``parameter`` (what a schedule is chosen by), ``extent`` (of a loop) or ``memory``
            (in bytes).
        domain: What it may be before any constraint.
        meaning: What it is, in terms of the variables before it; None for a parameter.
        step: The schedule step that it follows from, "" where there is none.
    """

    name: str
    kind: str
    domain: Domain
    meaning: IntExpr | None = None
    step: str = ""

    @property
    def text(self) -> str:
        """Its definition as a formula."""
        return f"{self.name} = {_bare(self.meaning)}" if self.meaning is not None else self.name

    @property
    def domain_text(self) -> str:
        """``1 .. 64``, or the values, in the middle of long lists dots."""
        if isinstance(self.domain, range):
            return f"{self.domain[0]} .. {self.domain[-1]}"
        return _listed(self.domain)


@frozen
class Demand:
    """A constraint of a sketch on the variables of a problem.

    Attributes:
        constraint: The constraint.
        step: The schedule step that it follows from, "" where there is none.
    """

    constraint: Constraint
    step: str = ""

    @property
    def text(self) -> str:
        """The relation as a formula."""
        given = self.constraint
        if isinstance(given, ProductEquals):
            return f"{_bare(given.total)} = {' * '.join(given.factors)}"
        if isinstance(given, (AtMost, AtLeast)):
            sign = "<=" if isinstance(given, AtMost) else ">="
            return f"{_bare(given.expression)} {sign} {given.limit}"
        if given.values == (0,) and given.expression.op == "mod":
            dividend, divisor = given.expression.args
            return f"{_bare(divisor)} divides {_bare(dividend)}"
        if len(given.values) == 1:
            return f"{_bare(given.expression)} = {given.values[0]}"
        return f"{_bare(given.expression)} in {_listed(given.values)}"

    @property
    def origin(self) -> str:
        """Origin: who asks for it, and the step, whatever is known of them."""
        return ", ".join(part for part in (self.constraint.source, self.step) if part)


@frozen
class ConstraintProblem:
    """Integers to be chosen, neutral to compilers; a solution gives every variable a value."""

    name: str
    variables: tuple[Variable, ...]
    constraints: tuple[Demand, ...]

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits over variables and constraints, equal in every process.

        Neither the problem's name nor the order nor the origins of constraints matter, nor does
        the order of variables: problems with one digest have the same solutions.
        """
        content = self.to_json()
        demands = {json.dumps(_relation(it), sort_keys=True) for it in content["constraints"]}
        known = [[it["name"], it["domain"], it["meaning"]] for it in content["variables"]]
        text = json.dumps([sorted(known, key=str), sorted(demands)], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """A JSON object with everything in it; constraints are as records have them."""
        return {
            "name": self.name,
            "variables": [
                {
                    "name": it.name,
                    "kind": it.kind,
                    "domain": _domain_json(it.domain),
                    "meaning": to_json(it.meaning),
                    "step": it.step,
                }
                for it in self.variables
            ],
            "constraints": [
                {**to_json(it.constraint), "step": it.step} for it in self.constraints
            ],
        }


def describe_problem(problem: ConstraintProblem, count: int) -> str:
    """Variables, what they mean, and constraints with their origins, as text.

    Args:
        problem: The problem.
        count: The number of its solutions.
    """
    variables = [(it.name, it.kind, it.domain_text) for it in problem.variables]
    defined = [(it.text, "", it.step) for it in problem.variables if it.meaning is not None]
    constraints = [
        (it.text, "hard" if it.constraint.hard else "soft", it.origin)
        for it in problem.constraints
    ]
    return "\n".join(
        [
            f"problem {problem.name}, digest {problem.digest}: {len(variables)} variables, "
            f"{len(constraints)} constraints, {count} solutions",
            "",
            *_aligned(variables),
            "",
            *_aligned([*defined, *constraints]),
        ]
    )


def _relation(constraint: dict[str, Any]) -> dict[str, Any]:
    return {key: it for key, it in constraint.items() if key not in ("source", "hard", "step")}


def _domain_json(domain: Domain) -> object:
    if isinstance(domain, range):
        return {"low": domain[0], "high": domain[-1]}
    return list(domain)


def _bare(expression: IntExpr) -> str:
    """An expression without the parentheses around all of a sum."""
    text = repr(expression)
    return text[1:-1] if expression.op in ("add", "floordiv", "mod") else text


def _listed(values: tuple[int, ...]) -> str:
    items = tuple(map(str, values))
    if len(items) > _SHOWN:
        items = (*items[: _SHOWN - 2], "...", items[-1])
    return "{" + ", ".join(items) + "}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


class ContradictoryConstraints(InvalidValueError):
    """Constraints that nothing satisfies; the message lists a smallest set of them."""


def problem_of(sketch: Sketch) -> ConstraintProblem:
    """The constraints that a sketch's steps and its target put on its parameters.

    Variables are the parameters, extents of loops and sides of buffers that are sums or products
    of parameters, and the bytes of every buffer that the steps allocate, with the halo of what is
    read at a distance. Where the sketch bounds a quantity that has a name, the bound is on the
    name. The solutions are the feasible configurations of the sketch, one to one. Constraints on
    what loops are split into come first.
    """
    nest = derive_nest(sketch)
    draft = _Draft(sketch)
    draft.add_parameters()
    draft.add_buffers(nest)
    draft.add_loops(nest)
    splits = [draft.split(it) for it in sketch.constraints if isinstance(it, ProductEquals)]
    limits = [draft.limit(it) for it in _limits(sketch)]
    return ConstraintProblem(sketch.name, tuple(draft.variables), (*splits, *limits))


@frozen(eq=False)
class _Draft:
    """The problem in the making; ``named`` are quantities that have a variable."""

    sketch: Sketch
    variables: list[Variable] = field(factory=list)
    named: dict[IntExpr, IntExpr] = field(factory=dict)
    steps_of: dict[IntExpr, str] = field(factory=dict)

    def add_parameters(self) -> None:
        for param in self.sketch.params:
            values = param.values
            whole = range(1, self._largest(param.name) + 1)
            domain: Domain = whole if values is None else values
            self.variables.append(Variable(param.name, "parameter", domain))

    def split(self, constraint: ProductEquals) -> Demand:
        """A split of a loop, perhaps of a padded one."""
        names = set(constraint.factors)
        step = next((step for step in self.sketch.steps if names <= _used(step)), None)
        return Demand(constraint, "" if step is None else _step_text(step))

    def limit(self, constraint: Constraint) -> Demand:
        """A limit, a membership or a divisibility."""
        assert not isinstance(constraint, ProductEquals)
        expression = constraint.expression
        step = self.steps_of.get(expression) or _deciding_step(self.sketch, expression)
        subject = self.named.get(expression, expression)
        return Demand(evolve(constraint, expression=subject), step)

    def add_buffers(self, nest: LoopNest) -> None:
        """Bytes of every buffer, and of all buffers of a scope where there are several."""
        scopes: dict[str, list[IntExpr]] = {}
        for buffer in nest.buffers:
            bytes_of = self._buffer(buffer)
            scopes.setdefault(buffer.scope, []).append(bytes_of)
        for scope, parts in scopes.items():
            total = sum((self._meaning(part) for part in parts), const(0))
            if len(parts) > 1 and total not in self.named:
                whole = sum(parts, const(0))
                self._define(f"{scope} memory", total, whole, "memory", f"all of scope {scope}")

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

    def _buffer(self, buffer: Buffer) -> IntExpr:
        step = _allocating_step(self.sketch, buffer)
        sides = [
            self._side(f"{buffer.name} side {position}", extent, step)
            for position, extent in enumerate(buffer.extents)
        ]
        if buffer.bytes in self.named:
            return self.named[buffer.bytes]
        self.steps_of.setdefault(buffer.bytes, step)
        size = product([*sides, const(element_type(buffer.dtype).bytes)])
        return self._define(f"{buffer.name} bytes", buffer.bytes, size, "memory", step)

    def _side(self, name: str, extent: IntExpr, step: str) -> IntExpr:
        """A variable for a product, a sum, or anything else that is not known already."""
        if extent in self.named:
            return self.named[extent]
        if extent.op in ("const", "var"):
            return extent
        return self._define(name, extent, extent, "extent", step)

    def _define(
        self, name: str, expression: IntExpr, meaning: IntExpr, kind: str, step: str
    ) -> IntExpr:
        """A variable for an expression of parameters; ``meaning`` may name parts of it."""
        low, high = self._range(expression)
        self.variables.append(Variable(name, kind, range(low, high + 1), meaning, step))
        self.named[expression] = var(name)
        return var(name)

    def _range(self, expression: IntExpr) -> Range:
        """The range of a quantity over all parameters."""
        ranges = {}
        for variable in self.variables:
            if variable.kind == "parameter":
                ranges[variable.name] = (min(variable.domain), max(variable.domain))
        return Ranges(ranges).of(expression)

    def _meaning(self, name: IntExpr) -> IntExpr:
        """Meaning of a named quantity in terms of parameters."""
        return next((made for made, given in self.named.items() if given == name), name)

    def _largest(self, name: str) -> int:
        """The upper bound of a factor without values: the product that it is in."""
        by_name = {param.name: param.values for param in self.sketch.params}
        found = [1]
        for constraint in self.sketch.constraints:
            if isinstance(constraint, ProductEquals) and name in constraint.factors:
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


def require_solutions(sketch: Sketch) -> None:
    """Nothing where ``sketch`` has a feasible configuration.

    Raises:
        ContradictoryConstraints: it has none; names a smallest set of limits with none, and the
            splits and sizes that they are about.
        InvalidValueError: it is too large to be solved.
    """
    conflict = smallest_conflict(sketch)
    if conflict is not None:
        raise ContradictoryConstraints(_message(sketch, conflict))


def smallest_conflict(sketch: Sketch) -> tuple[Constraint, ...] | None:
    """Find as few limits of a sketch as possible that contradict each other; None where none do.

    What its loops are split into is taken as given; that contradicts itself where the result is
    empty. The search is by hitting sets (Ignatiev et al., "Smallest MUS extraction with minimal
    hitting set dualization", CP'15): a set without solutions takes at least one constraint from
    the complement of every satisfiable set; a smallest such choice that has no solution is a
    smallest conflict.

    Raises:
        InvalidValueError: a part of the sketch is too large to be solved.
    """
    splits = tuple(item for item in sketch.constraints if isinstance(item, ProductEquals))
    limits = _limits(sketch)

    def satisfiable(chosen: Sequence[int]) -> bool:
        part = evolve(sketch, constraints=(*splits, *(limits[index] for index in chosen)))
        return build_feasible_set(part).count > 0

    if satisfiable(range(len(limits))):
        return None
    return tuple(limits[index] for index in _smallest(len(limits), satisfiable))


def _limits(sketch: Sketch) -> list[Constraint]:
    return [item for item in sketch.constraints if not isinstance(item, ProductEquals)]


def _smallest(size: int, satisfiable: Callable[[Sequence[int]], bool]) -> tuple[int, ...]:
    corrections: list[frozenset[int]] = []
    while True:
        chosen = _hitting_set(corrections)
        if not satisfiable(chosen):
            return chosen
        grown = set(chosen)
        for index in range(size):
            if index not in grown and satisfiable(sorted({*grown, index})):
                grown.add(index)
        corrections.append(frozenset(range(size)) - grown)


def _hitting_set(sets: Sequence[frozenset[int]]) -> tuple[int, ...]:
    """A smallest set that shares an element with every given one, first in order."""
    elements = sorted(frozenset().union(*sets))
    for size in range(len(elements) + 1):
        for chosen in itertools.combinations(elements, size):
            if all(not of.isdisjoint(chosen) for of in sets):
                return chosen
    raise InvalidValueError("an empty set cannot be hit")


def _message(sketch: Sketch, conflict: Sequence[Constraint]) -> str:
    problem, limits = problem_of(sketch), _limits(sketch)
    # The problem has the limits last, in the order of the sketch.
    first = len(problem.constraints) - len(limits)
    splits = problem.constraints[:first]
    chosen = [problem.constraints[first + limits.index(item)] for item in conflict]
    names = set().union(*(it.constraint.names for it in chosen))
    defined: list[Variable] = []
    # A size is defined after what it consists of.
    for variable in reversed(problem.variables):
        if variable.meaning is not None and (variable.name in names or not conflict):
            names |= variable.meaning.variables
            defined.insert(0, variable)
    held = [it for it in splits if not conflict or not names.isdisjoint(it.constraint.names)]
    names |= set().union(*(it.constraint.names for it in held))
    lines = [
        *(it.text + (f" ({it.origin})" if it.origin else "") for it in held),
        *(it.text + (f" ({it.step})" if it.step else "") for it in defined),
        *(it.text + (f" ({it.origin})" if it.origin else "") for it in chosen),
    ]
    domains = [f"{it.name} in {it.domain_text}" for it in problem.variables if it.name in names]
    return (
        f"problem {problem.name!r} has no solution: {'; '.join(lines)}; with {', '.join(domains)}"
    )

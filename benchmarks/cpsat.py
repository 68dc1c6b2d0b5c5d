"""The constraints of a sketch as a model for OR-tools' CP-SAT, and points drawn from it.

CP-SAT is no sampler. What is done here is what is done for want of one: a solve for every point,
with a seed of its own and randomised search. The points are feasible, and of no distribution that
could be named.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence

from ortools.sat.python import cp_model

from autotune.expressions import IntExpr
from autotune.sketches import AtLeast, AtMost, Constraint, Factor, OneOf, ProductEquals, Sketch

# CP-SAT refuses a product that might pass 64 bits. No point that a machine could run has a
# quantity beyond this; products are taken in pairs, so that two of them fit.
_MOST = (1 << 31) - 1


class SketchModel:
    """A sketch's parameters and constraints.

    Args:
        sketch: The sketch; all its constraints count, hard and soft.
    """

    def __init__(self, sketch: Sketch) -> None:
        self.model = cp_model.CpModel()
        self.bounds: dict[IntExpr, tuple[int, int]] = {}
        self.known: dict[IntExpr, cp_model.IntVar] = {}
        self.params: dict[str, cp_model.IntVar] = {}
        self.domains = _domains(sketch)
        for param in sketch.params:
            values = self.domains[param.name]
            domain = cp_model.Domain.from_values(values)
            self.params[param.name] = self.model.new_int_var_from_domain(domain, param.name)
        for constraint in sketch.constraints:
            self._add(constraint)

    def sample(self, seed: int) -> tuple[int, ...] | None:
        """One feasible point; None if none was found within ten seconds.

        Random values are hinted at: with a seed alone the same point comes again and again.
        """
        rng = random.Random(seed)
        self.model.clear_hints()
        for name, variable in self.params.items():
            self.model.add_hint(variable, rng.choice(self.domains[name]))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed
        solver.parameters.randomize_search = True
        solver.parameters.max_time_in_seconds = 10
        if solver.solve(self.model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        return tuple(solver.value(variable) for variable in self.params.values())

    def enumerated(self, most: int, seconds: float) -> list[tuple[int, ...]]:
        """Feasible points one after the other in the order of the search; neighbours are alike."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.enumerate_all_solutions = True
        collector = _Collector(list(self.params.values()), most, seconds)
        solver.solve(self.model, collector)
        return collector.points

    def _add(self, constraint: Constraint) -> None:
        if isinstance(constraint, ProductEquals):
            factors = [self.params[name] for name in constraint.factors]
            self._multiply(factors, self._variable(constraint.total))
            return
        value = self._variable(constraint.expression)
        if isinstance(constraint, AtMost):
            self.model.add(value <= constraint.limit)
        elif isinstance(constraint, AtLeast):
            self.model.add(value >= constraint.limit)
        elif isinstance(constraint, OneOf):
            allowed = cp_model.Domain.from_values(constraint.values)
            self.model.add_linear_expression_in_domain(value, allowed)

    def _variable(self, expression: IntExpr) -> cp_model.IntVar:
        """A variable that equals the expression; equal expressions share one."""
        if expression.op == "var":
            return self.params[expression.args[0]]
        if expression not in self.known:
            self.known[expression] = self._made(expression)
        return self.known[expression]

    def _made(self, expression: IntExpr) -> cp_model.IntVar:
        low, high = (max(-_MOST, min(end, _MOST)) for end in self._range(expression))
        result = self.model.new_int_var(low, high, "")
        if expression.op == "const":
            return result
        parts = [self._variable(part) for part in expression.args]
        if expression.op == "add":
            self.model.add(sum(parts) == result)
        elif expression.op == "mul":
            self._multiply(parts, result)
        elif expression.op == "floordiv":
            self.model.add_division_equality(result, *parts)
        elif expression.op == "mod":
            self.model.add_modulo_equality(result, *parts)
        elif expression.op in ("min", "max"):
            add = (
                self.model.add_min_equality
                if expression.op == "min"
                else self.model.add_max_equality
            )
            add(result, parts)
        else:
            raise ValueError(f"no constraint of a sketch uses {expression.op!r} so far")
        return result

    def _multiply(self, parts: Sequence[cp_model.IntVar], result: cp_model.IntVar) -> None:
        """``result`` is the product of ``parts``."""
        product = parts[0]
        for part in parts[1:-1]:
            pair = self.model.new_int_var(-_MOST, _MOST, "")
            self.model.add_multiplication_equality(pair, [product, part])
            product = pair
        self.model.add_multiplication_equality(result, [product, *parts[1:][-1:]])

    def _range(self, expression: IntExpr) -> tuple[int, int]:
        """Least and greatest value over the parameters' domains."""
        if expression.op == "const":
            return expression.args[0], expression.args[0]
        if expression.op == "var":
            values = self.domains[expression.args[0]]
            return min(values), max(values)
        if expression not in self.bounds:
            self.bounds[expression] = _combined(
                expression.op, [self._range(part) for part in expression.args]
            )
        return self.bounds[expression]


class _Collector(cp_model.CpSolverSolutionCallback):
    """Keeps solutions until there are enough or time is up."""

    def __init__(self, variables: Sequence[cp_model.IntVar], most: int, seconds: float) -> None:
        super().__init__()
        self.points: list[tuple[int, ...]] = []
        self._variables = variables
        self._most = most
        self._end = time.perf_counter() + seconds

    def on_solution_callback(self) -> None:
        """Called by the solver."""
        self.points.append(tuple(self.value(variable) for variable in self._variables))
        if len(self.points) >= self._most or time.perf_counter() > self._end:
            self.stop_search()


def _combined(operation: str, ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    if operation == "add":
        return sum(low for low, _ in ranges), sum(high for _, high in ranges)
    if operation in ("min", "max"):
        choose = min if operation == "min" else max
        return choose(low for low, _ in ranges), choose(high for _, high in ranges)
    if operation == "mod":
        return 0, max(0, ranges[1][1] - 1)
    first, *others = ranges
    for other in others:
        corners = [
            a * b if operation == "mul" else a // max(1, b)
            for a, b in itertools.product(first, other)
        ]
        first = (min(corners), max(corners))
    return first


def _domains(sketch: Sketch) -> dict[str, list[int]]:
    """Values of every parameter: those given for it, or every divisor of its product."""
    given = {p.name: list(p.values) for p in sketch.params if p.values is not None}
    found = dict(given)
    for constraint in sketch.constraints:
        if not isinstance(constraint, ProductEquals):
            continue
        total = constraint.total
        totals = given[total.args[0]] if total.op == "var" else [int(total.value or 1)]
        divisors = sorted({d for t in totals for d in range(1, t + 1) if t % d == 0})
        for name in constraint.factors:
            found.setdefault(name, divisors)
    missing = [p.name for p in sketch.params if isinstance(p, Factor) and p.name not in found]
    if missing:
        raise ValueError(f"parameter {missing[0]!r} is in no product")
    return found

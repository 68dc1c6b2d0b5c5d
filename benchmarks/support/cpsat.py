"""Configurations of a sketch found by OR-tools' CP-SAT, which feasible sets are compared with.

CP-SAT is no sampler: what it finds has no distribution that could be named. The model is built
once; every configuration is a solve with a seed and random hints of its own.
"""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from autotune.errors import AutotuneError
from autotune.ir.expressions import IntExpr, product, var
from autotune.sketches import AtLeast, AtMost, Param, ProductEquals, Sketch
from autotune.sketches.candidates import Matrix
from autotune.spaces.feasible import Ranges

# CP-SAT refuses a product that might pass 64 bits: two of these do not.
_MOST = (1 << 31) - 1


class SamplingFailed(AutotuneError):
    """CP-SAT found no configuration: there is none, or the budget was spent."""


class CpSatSampler:
    """Feasible configurations of a sketch, one solve each.

    Args:
        sketch: The sketch; no quantity in it may pass 31 bits in a configuration.
        budget: Deterministic time for each solve, in CP-SAT's units (about seconds), so that what
            is found does not depend on how busy the machine is.
    """

    def __init__(self, sketch: Sketch, budget: float = 1.0) -> None:
        self.name = sketch.name
        self.budget = budget
        self.model = cp_model.CpModel()
        self._domains = {param.name: _domain(sketch, param) for param in sketch.params}
        self._ranges = {name: (values[0], values[-1]) for name, values in self._domains.items()}
        self._variables = {
            name: self.model.new_int_var_from_domain(cp_model.Domain.from_values(values), name)
            for name, values in self._domains.items()
        }
        self._known: dict[IntExpr, cp_model.IntVar] = {}
        for constraint in sketch.constraints:
            if isinstance(constraint, ProductEquals):
                factors = product(tuple(var(name) for name in constraint.factors))
                self.model.add(self._value(factors) == self._value(constraint.total))
                continue
            value = self._value(constraint.expression)
            if isinstance(constraint, AtMost):
                self.model.add(value <= constraint.limit)
            elif isinstance(constraint, AtLeast):
                self.model.add(value >= constraint.limit)
            else:
                allowed = cp_model.Domain.from_values(list(constraint.values))
                self.model.add_linear_expression_in_domain(value, allowed)

    def sample(self, n: int, seed: int, first: int = 0) -> Matrix:
        """``n`` configurations [n, params]; row i follows from the seed and ``first + i`` alone.

        Raises:
            SamplingFailed: there is no solution, or none was found within the budget.
        """
        rows = np.empty((n, len(self._variables)), dtype=np.int64)
        for index in range(n):
            rows[index] = self._solution(np.random.default_rng((seed, first + index)))
        return rows

    def enumerate(self, most: int) -> Matrix:
        """The first ``most`` configurations [at most ``most``, params] in the order of the search,
        all of them if there are fewer; neighbours in it are alike.

        Raises:
            SamplingFailed: the budget was spent before.
        """
        found: list[list[int]] = []
        columns = list(self._variables.values())

        class Collector(cp_model.CpSolverSolutionCallback):
            def on_solution_callback(self) -> None:
                found.append([self.value(column) for column in columns])
                if len(found) == most:
                    self.stop_search()

        self.model.clear_hints()
        solver = self._solver()
        solver.parameters.enumerate_all_solutions = True
        status = solver.solve(self.model, Collector())
        if len(found) < most and status not in (cp_model.OPTIMAL, cp_model.INFEASIBLE):
            raise self._spent(f"{len(found)} solutions", solver.status_name(status))
        return np.array(found, dtype=np.int64).reshape(-1, len(columns))

    def _solver(self) -> cp_model.CpSolver:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = self.budget
        return solver

    def _spent(self, found: str, status: str) -> SamplingFailed:
        return SamplingFailed(
            f"sketch {self.name!r}: CP-SAT found {found} within a deterministic time "
            f"of {self.budget:g} ({status.lower()})"
        )

    def _solution(self, rng: np.random.Generator) -> list[int]:
        self.model.clear_hints()
        for name, variable in self._variables.items():
            self.model.add_hint(variable, int(rng.choice(self._domains[name])))
        solver = self._solver()
        solver.parameters.randomize_search = True
        solver.parameters.random_seed = int(rng.integers(2**31))
        status = solver.solve(self.model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return [solver.value(variable) for variable in self._variables.values()]
        if status == cp_model.INFEASIBLE:
            raise SamplingFailed(f"sketch {self.name!r} has no configuration")
        raise self._spent("no solution", solver.status_name(status))

    def _value(self, expression: IntExpr) -> cp_model.IntVar:
        """A variable that equals the expression; equal expressions share one."""
        if expression.op == "var":
            return self._variables[expression.args[0]]
        if expression not in self._known:
            self._known[expression] = self._made(expression)
        return self._known[expression]

    def _made(self, expression: IntExpr) -> cp_model.IntVar:
        low, high = Ranges(self._ranges).of(expression)
        result = self.model.new_int_var(max(low, -_MOST), min(high, _MOST), "")
        if expression.op == "const":
            return result
        parts = [self._value(part) for part in expression.args]
        if expression.op == "add":
            self.model.add(sum(parts) == result)
        elif expression.op == "mul":
            self._multiply(parts, result)
        elif expression.op == "floordiv":
            self._divide(parts, result)
        elif expression.op == "mod":
            self._divide(parts, None, result)
        elif expression.op == "min":
            self.model.add_min_equality(result, parts)
        elif expression.op == "max":
            self.model.add_max_equality(result, parts)
        else:
            self._choose(expression.op, parts, result)
        return result

    def _divide(
        self,
        parts: list[cp_model.IntVar],
        quotient: cp_model.IntVar | None,
        remainder: cp_model.IntVar | None = None,
    ) -> None:
        """Division that rounds down, by a positive divisor: CP-SAT's own rounds to zero."""
        dividend, divisor = parts
        if quotient is None:
            quotient = self.model.new_int_var(-_MOST, _MOST, "")
        if remainder is None:
            remainder = self.model.new_int_var(0, _MOST, "")
        multiple = self.model.new_int_var(-_MOST, _MOST, "")
        self.model.add_multiplication_equality(multiple, [quotient, divisor])
        self.model.add(multiple + remainder == dividend)
        self.model.add(remainder >= 0)
        self.model.add(remainder < divisor)

    def _multiply(self, parts: list[cp_model.IntVar], result: cp_model.IntVar) -> None:
        product = parts[0]
        for part in parts[1:-1]:
            pair = self.model.new_int_var(-_MOST, _MOST, "")
            self.model.add_multiplication_equality(pair, [product, part])
            product = pair
        self.model.add_multiplication_equality(result, [product, *parts[1:][-1:]])

    def _choose(self, op: str, parts: list[cp_model.IntVar], result: cp_model.IntVar) -> None:
        """``less(a, b)`` or ``select(condition, a, b)``."""
        holds = self.model.new_bool_var("")
        if op == "less":
            self.model.add(parts[0] < parts[1]).only_enforce_if(holds)
            self.model.add(parts[0] >= parts[1]).only_enforce_if(~holds)
            self.model.add(result == holds)
            return
        condition, first, second = parts
        self.model.add(condition != 0).only_enforce_if(holds)
        self.model.add(condition == 0).only_enforce_if(~holds)
        self.model.add(result == first).only_enforce_if(holds)
        self.model.add(result == second).only_enforce_if(~holds)


def _domain(sketch: Sketch, param: Param) -> list[int]:
    """Sorted values of a parameter: for a factor, whatever divides one of its totals."""
    if param.values is not None:
        return sorted(set(param.values))
    listed = {other.name: other.values or () for other in sketch.params}
    totals: set[int] = set()
    for constraint in sketch.constraints:
        if isinstance(constraint, ProductEquals) and param.name in constraint.factors:
            total = constraint.total
            totals.update(listed[total.args[0]] if total.value is None else (total.value,))
    return sorted({d for total in totals for d in range(1, total + 1) if total % d == 0})

"""Solutions of problems that are too large to be counted, found by OR-tools' CP-SAT.

Needs the extra ``cpsat``. CP-SAT is no sampler: what it finds has no distribution that could be
named, so nothing falls back to it by itself. The model is built once; every solution is a solve
with a seed and random hints of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from autotune.errors import AutotuneError
from autotune.ir.expressions import IntExpr
from autotune.sketches import AtLeast, AtMost
from autotune.sketches.candidates import Matrix
from autotune.spaces.feasible import Range, expression_range
from autotune.spaces.problems.domains import narrowed_domains
from autotune.spaces.problems.problem import ConstraintProblem
from autotune.spaces.problems.relations import relations
from autotune.spaces.problems.vocabulary import Domain, IntRange, Table

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["CpSatSampler", "SamplingFailed"]

# CP-SAT refuses a product that might pass 64 bits: two of these do not.
_MOST = (1 << 31) - 1


class SamplingFailed(AutotuneError):
    """CP-SAT found no solution: there is none, or the budget was spent; the message says which."""


class CpSatSampler:
    """Solutions of a problem, one solve each.

    Args:
        problem: The problem; no quantity in it may pass 31 bits in a solution.
        budget: Deterministic time for each solve, in CP-SAT's units (about seconds), so that what
            is found does not depend on how busy the machine is.

    Raises:
        ImportError: OR-tools is not installed.
    """

    def __init__(self, problem: ConstraintProblem, budget: float = 1.0) -> None:
        from ortools.sat.python import cp_model

        self.problem = problem
        self.budget = budget
        self.model = cp_model.CpModel()
        domains = narrowed_domains(problem)
        # CP-SAT takes a variable without values for a mistake.
        self._contradictory = () in domains.values()
        if self._contradictory:
            return
        self._ranges = {name: _ends(domain) for name, domain in domains.items()}
        self._domains = domains
        self._variables = {
            name: self.model.new_int_var_from_domain(_domain(domain), name)
            for name, domain in domains.items()
        }
        self._known: dict[IntExpr, cp_model.IntVar] = {}
        for constraint in problem.constraints:
            if isinstance(constraint, Table):
                columns = [self._variables[name] for name in constraint.columns]
                self.model.add_allowed_assignments(columns, constraint.rows)
                continue
            for relation in relations(constraint):
                value = self._value(relation.expression)
                if isinstance(relation, AtMost):
                    self.model.add(value <= relation.limit)
                elif isinstance(relation, AtLeast):
                    self.model.add(value >= relation.limit)
                elif not relation.values:
                    self.model.add_bool_or([])
                else:
                    allowed = cp_model.Domain.from_values(list(relation.values))
                    self.model.add_linear_expression_in_domain(value, allowed)

    def sample(self, n: int, seed: int, first: int = 0) -> Matrix:
        """``n`` solutions [n, variables]; row i is a function of the seed and ``first + i`` alone.

        Raises:
            SamplingFailed: there is no solution, or none was found within the budget.
        """
        names = self.problem.variable_names
        rows = np.empty((n, len(names)), dtype=np.int64)
        for index in range(n):
            rows[index] = self._solution(np.random.default_rng((seed, first + index)))
        return rows

    def enumerate(self, most: int) -> Matrix:
        """The first ``most`` solutions [at most ``most``, variables] in the order of the search,
        all of them if there are fewer; neighbours in it are alike.

        Raises:
            SamplingFailed: the budget was spent before.
        """
        from ortools.sat.python import cp_model

        found: list[list[int]] = []
        if self._contradictory or most < 1:
            return self._rows(found)
        columns = [self._variables[name] for name in self.problem.variable_names]

        class Collector(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
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
        return self._rows(found)

    def _rows(self, found: list[list[int]]) -> Matrix:
        return np.array(found, dtype=np.int64).reshape(-1, len(self.problem.variable_names))

    def _solver(self) -> cp_model.CpSolver:
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = self.budget
        return solver

    def _spent(self, found: str, status: str) -> SamplingFailed:
        return SamplingFailed(
            f"problem {self.problem.name!r}: CP-SAT found {found} within a deterministic time "
            f"of {self.budget:g} ({status.lower()})"
        )

    def _solution(self, rng: np.random.Generator) -> list[int]:
        from ortools.sat.python import cp_model

        if self._contradictory:
            raise SamplingFailed(f"problem {self.problem.name!r} has no solution")
        self.model.clear_hints()
        for name, variable in self._variables.items():
            domain = self._domains[name]
            if isinstance(domain, tuple) and domain:
                self.model.add_hint(variable, int(rng.choice(domain)))
        solver = self._solver()
        solver.parameters.randomize_search = True
        solver.parameters.random_seed = int(rng.integers(2**31))
        status = solver.solve(self.model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return [solver.value(self._variables[name]) for name in self.problem.variable_names]
        if status == cp_model.INFEASIBLE:
            raise SamplingFailed(f"problem {self.problem.name!r} has no solution")
        raise self._spent("no solution", solver.status_name(status))

    def _value(self, expression: IntExpr) -> cp_model.IntVar:
        """A variable that equals the expression; equal expressions share one."""
        if expression.op == "var":
            return self._variables[expression.args[0]]
        if expression not in self._known:
            self._known[expression] = self._made(expression)
        return self._known[expression]

    def _made(self, expression: IntExpr) -> cp_model.IntVar:
        low, high = expression_range(expression, self._ranges)
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


def _ends(domain: Domain) -> Range:
    if isinstance(domain, IntRange):
        return domain.low, domain.high
    return (domain[0], domain[-1]) if domain else (0, 0)


def _domain(domain: Domain) -> cp_model.Domain:
    from ortools.sat.python import cp_model

    if isinstance(domain, IntRange):
        return cp_model.Domain(max(domain.low, -_MOST), min(domain.high, _MOST))
    return cp_model.Domain.from_values(list(domain))

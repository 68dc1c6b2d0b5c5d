"""Linear forms over the counters of loops, with exact ranges.

A *digit* is the counter of a loop, or an integer that is derived from others: a quotient, a
remainder, or what of a form is above or below zero. Indices of a concrete program are sums of
multiples of digits; since every digit has a range, most quotients, remainders, minima and
conditions are decided here, before anything is printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from attrs import define, evolve, field, frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import AffineForm, IntExpr

__all__ = ["Derived", "DerivedOp", "Digits", "Linear"]

DerivedOp = Literal["div", "mod", "at_most_0", "at_least_0"]


@frozen
class Linear:
    """``constant + sum(coefficient * digit)``, digits in the order of their names."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    @property
    def digits(self) -> tuple[str, ...]:
        """Names of the digits that it depends on directly."""
        return tuple(name for name, _ in self.terms)

    def coefficient(self, digit: str) -> int:
        """By how much one step of ``digit`` changes it, apart from digits derived from it."""
        return next((value for name, value in self.terms if name == digit), 0)

    def __add__(self, other: Linear | int) -> Linear:
        if isinstance(other, int):
            return Linear(self.terms, self.constant + other) if other else self
        if not other.terms:
            return self + other.constant
        if not self.terms:
            return other + self.constant
        found = dict(self.terms)
        for name, value in other.terms:
            found[name] = found.get(name, 0) + value
        return _linear(found, self.constant + other.constant)

    def __sub__(self, other: Linear | int) -> Linear:
        return self + other * -1

    def __mul__(self, factor: int) -> Linear:
        if factor == 1:
            return self
        if factor == 0:
            return Linear()
        return Linear(
            tuple((name, value * factor) for name, value in self.terms), self.constant * factor
        )

    def kept(self, keep: Callable[[str], bool]) -> Linear:
        """The terms of the digits for which ``keep`` holds, and the constant."""
        return Linear(tuple(term for term in self.terms if keep(term[0])), self.constant)

    def without(self, digit: str | None) -> Linear:
        """Everything but the term of one digit."""
        return self.kept(lambda name: name != digit)


def _linear(coefficients: Mapping[str, int], constant: int) -> Linear:
    return Linear(
        tuple(sorted((name, value) for name, value in coefficients.items() if value)), constant
    )


@frozen
class Derived:
    """A digit that follows from others.

    Attributes:
        op: ``div`` and ``mod`` by ``divisor``, or the smaller or larger of ``operand`` and 0.
        operand: What it is computed from; not negative where it is divided.
        divisor: A positive constant; 1 where nothing is divided.
    """

    op: DerivedOp
    operand: Linear
    divisor: int = 1

    def of(self, value: int) -> int:
        """The digit's value, given that of its operand."""
        if self.op == "div":
            return value // self.divisor
        if self.op == "mod":
            return value % self.divisor
        return min(value, 0) if self.op == "at_most_0" else max(value, 0)


@define(eq=False)
class Digits:
    """The digits of a program.

    Attributes:
        ranges: Least and greatest value of each digit.
        derived: Those that follow from others.
        fixed: Counters of expanded loops, by what they are in the copy that is being printed.
        shifts: What is added to counters, where an iteration is run for another one.
    """

    ranges: dict[str, tuple[int, int]] = field(factory=dict)
    derived: dict[str, Derived] = field(factory=dict)
    fixed: dict[str, int] = field(factory=dict)
    shifts: dict[str, int] = field(factory=dict)
    _names: dict[tuple[Derived, int, int], str] = field(factory=dict)
    _sources: dict[str, frozenset[str]] = field(factory=dict)

    def counter(self, name: str, extent: int) -> Linear:
        """The counter of a loop that runs ``extent`` times."""
        self.ranges[name] = (0, extent - 1)
        return Linear(((name, 1),)) if extent > 1 else Linear()

    def bounds(self, linear: Linear) -> tuple[int, int]:
        """Least and greatest value, each digit taken for itself."""
        low = high = linear.constant
        for name, value in linear.terms:
            least, most = self.ranges[name]
            low += value * (least if value > 0 else most)
            high += value * (most if value > 0 else least)
        return low, high

    def quotient(self, linear: Linear, divisor: int) -> Linear:
        """``linear // divisor``, rounded down."""
        whole, rest = self._divided(linear, divisor)
        low, high = self.bounds(rest)
        if low // divisor == high // divisor:
            return whole + low // divisor
        if (parts := self._grouped(rest, divisor)) is not None:
            groups, _, size = parts
            return whole + self.quotient(groups, divisor // size)
        shift = -(low // divisor) if low < 0 else 0
        return whole + self._derive(Derived("div", rest + shift * divisor, divisor)) - shift

    def remainder(self, linear: Linear, divisor: int) -> Linear:
        """``linear % divisor``, at least 0."""
        _, rest = self._divided(linear, divisor)
        low, high = self.bounds(rest)
        if low // divisor == high // divisor:
            return rest - low // divisor * divisor
        if (parts := self._grouped(rest, divisor)) is not None:
            groups, within, size = parts
            return self.remainder(groups, divisor // size) * size + within
        shift = -(low // divisor) if low < 0 else 0
        return self._derive(Derived("mod", rest + shift * divisor, divisor))

    def smaller(self, left: Linear, right: Linear) -> Linear:
        """The smaller of two."""
        low, high = self.bounds(left - right)
        if high <= 0 or low >= 0:
            return left if high <= 0 else right
        return right + self._derive(Derived("at_most_0", left - right))

    def larger(self, left: Linear, right: Linear) -> Linear:
        """The larger of two."""
        low, high = self.bounds(left - right)
        if high <= 0 or low >= 0:
            return right if high <= 0 else left
        return right + self._derive(Derived("at_least_0", left - right))

    def _divided(self, linear: Linear, divisor: int) -> tuple[Linear, Linear]:
        """Divide what divides evenly; the rest has a constant below the divisor."""
        whole = {name: value // divisor for name, value in linear.terms if value % divisor == 0}
        rest = {name: value for name, value in linear.terms if value % divisor}
        constant, remainder = divmod(linear.constant, divisor)
        return _linear(whole, constant), _linear(rest, remainder)

    def _grouped(self, linear: Linear, divisor: int) -> tuple[Linear, Linear, int] | None:
        """Number of a group and place in it, where groups of one size divide the divisor.

        ``8 * i + j`` with ``j`` below 8 is place ``j`` of group ``i``: three of them make 24.
        """
        sizes = {math.gcd(divisor, value) for _, value in linear.terms} - {1, divisor}
        for size in sorted(sizes, reverse=True):
            groups = {name: value // size for name, value in linear.terms if value % size == 0}
            places = {name: value for name, value in linear.terms if value % size}
            number, first = divmod(linear.constant, size)
            within = _linear(places, first)
            low, high = self.bounds(within)
            if low >= 0 and high < size:
                return _linear(groups, number), within, size
        return None

    def _derive(self, derived: Derived) -> Linear:
        # Ranges are narrower where some iterations of a loop are printed apart.
        low, high = self.bounds(derived.operand)
        name = self._names.get((derived, low, high))
        if name is None:
            name = f"{derived.op}.{len(self._names)}"
            self._names[derived, low, high] = name
            self.derived[name] = derived
            ends = (0, derived.divisor - 1) if derived.op == "mod" else ()
            self.ranges[name] = ends or (derived.of(low), derived.of(high))
        return Linear(((name, 1),))

    def resolved(self, linear: Linear) -> Linear:
        """The form with the values of all digits that are known, and with counters shifted."""
        if not self.fixed and not self.shifts:
            return linear
        result = self._settled(linear)
        shift = sum(value * self.shifts.get(name, 0) for name, value in result.terms)
        return result + shift if shift else result

    def _settled(self, linear: Linear) -> Linear:
        """The form with the values of all digits that are known."""
        if not self.fixed:
            return linear
        constant = linear.constant
        left: list[tuple[str, int]] = []
        others: list[tuple[str, int]] = []
        for name, coefficient in linear.terms:
            if name in self.fixed:
                constant += coefficient * self.fixed[name]
                continue
            derived = self.derived.get(name)
            operand = None if derived is None else self._settled(derived.operand)
            if derived is None or operand is None or operand == derived.operand:
                left.append((name, coefficient))
                continue
            again = self._derived_again(derived, operand)
            constant += coefficient * again.constant
            others += ((digit, value * coefficient) for digit, value in again.terms)
        if not others:
            same = len(left) == len(linear.terms)
            return linear if same else Linear(tuple(left), constant)
        found = dict(left)
        for name, value in others:
            found[name] = found.get(name, 0) + value
        return _linear(found, constant)

    def _derived_again(self, derived: Derived, operand: Linear) -> Linear:
        """A digit that is derived from less, since some of what it follows from is known."""
        if not operand.terms:
            return Linear((), derived.of(operand.constant))
        if derived.op == "div":
            return self.quotient(operand, derived.divisor)
        if derived.op == "mod":
            return self.remainder(operand, derived.divisor)
        nearer = self.smaller if derived.op == "at_most_0" else self.larger
        return nearer(operand, Linear())

    def joined(self, linear: Linear) -> Linear:
        """The form with quotients and remainders of one number put together again.

        ``x // n * n + x % n -> x``, ``x // n % b * n + x % n -> x % (n * b)``, and ``x % n -> x``
        where ``x`` is below ``n``.
        """
        terms = dict(linear.terms)
        for name, factor in linear.terms:
            derived = self.derived.get(name)
            if derived is None or derived.op != "mod":
                continue
            low, high = self.bounds(derived.operand)
            rest = linear - Linear(((name, factor),))
            if low >= 0 and high < derived.divisor:
                return self.joined(rest + derived.operand * factor)
            quotient = evolve(derived, op="div")
            for other in [it for it, by in terms.items() if by == factor * derived.divisor]:
                rest = linear - Linear(((name, factor), (other, terms[other])))
                if self._whole(other) == quotient:
                    return self.joined(rest + derived.operand * factor)
                above = self.derived.get(other)
                inner = self._alone(above.operand) if above and above.op == "mod" else None
                if above is not None and inner is not None and self._whole(inner) == quotient:
                    size = derived.divisor * above.divisor
                    return self.joined(rest + self.remainder(derived.operand, size) * factor)
        return linear

    @staticmethod
    def _alone(linear: Linear) -> str | None:
        """The digit that a form is, or None."""
        (name, factor), *others = linear.terms or (("", 0),)
        return name if factor == 1 and not others and not linear.constant else None

    def _whole(self, digit: str) -> Derived | None:
        """The quotient that a digit is, with quotients of quotients as one; None if it is none."""
        derived = self.derived.get(digit)
        if derived is None or derived.op != "div":
            return None
        inner = self._alone(derived.operand)
        around = None if inner is None else self._whole(inner)
        if around is None:
            return derived
        return evolve(around, divisor=around.divisor * derived.divisor)

    def depends(self, linear: Linear, digit: str) -> bool:
        """Tell whether a form depends on a digit, through derived ones, too."""
        return any(digit == name or digit in self.sources(name) for name, _ in linear.terms)

    def is_apart(self, linear: Linear, digit: str) -> bool:
        """Tell whether a form depends on a digit by its coefficient alone."""
        return not self.depends(linear.without(digit), digit)

    def sources(self, name: str) -> frozenset[str]:
        """The counters that a digit follows from."""
        if name not in self.derived:
            return frozenset((name,))
        if name not in self._sources:
            found = map(self.sources, self.derived[name].operand.digits)
            self._sources[name] = frozenset().union(*found)
        return self._sources[name]

    @contextmanager
    def at(self, digit: str, value: int) -> Iterator[None]:
        """Let a counter have one value."""
        before = self.fixed.get(digit)
        self.fixed[digit] = value
        yield
        if before is None:
            del self.fixed[digit]
        else:
            self.fixed[digit] = before

    @contextmanager
    def knowing(self, forms: Iterable[Linear]) -> Iterator[None]:
        """Inside, each of the forms is less than 0; digits of one value only have that."""
        ranges, fixed = dict(self.ranges), dict(self.fixed)
        known = [self.resolved(form) for form in forms]
        for form in known:
            for name, factor in form.terms:
                if factor > 0:
                    most = (-1 - self.bounds(form.without(name))[0]) // factor
                    self.ranges[name] = _narrowed(self.ranges[name], (self.ranges[name][0], most))
        for name, derived in self.derived.items() if known else ():
            low, high = self.bounds(derived.operand)
            high = min(high, *(self._most(derived.operand, form, high) for form in known))
            if derived.op != "mod" or low // derived.divisor == high // derived.divisor:
                ends = (derived.of(low), derived.of(high))
                self.ranges[name] = _narrowed(self.ranges[name], ends)
        changed = [name for name, range_ in self.ranges.items() if range_ != ranges[name]]
        self.fixed |= {it: self.ranges[it][0] for it in changed if len({*self.ranges[it]}) == 1}
        yield
        self.ranges, self.fixed = {**self.ranges, **ranges}, fixed

    def _most(self, linear: Linear, below: Linear, most: int) -> int:
        """The greatest value of a form, given another one that is less than 0; else ``most``.

        ``below - factor * linear`` is at least 0 where the form is a quotient of the other one.
        """
        for name, value in linear.terms:
            factor, rest = divmod(below.coefficient(name), value)
            if factor > 0 and not rest:
                left = below - linear * factor
                for other, by in left.terms:
                    whole = self._whole(other)
                    if by < 0 and whole is not None and by % whole.divisor == 0:
                        more = whole.operand * (by // whole.divisor)
                        left = left - Linear(((other, by),)) + more
                # As factor * linear = below - left.
                most = min(most, (-1 - self.bounds(left)[0]) // factor)
        return most

    def of_form(self, form: AffineForm, axes: Mapping[str, Linear]) -> Linear:
        """An index of an access, given its statement's axes.

        Raises:
            UnsupportedWorkload: an index is neither linear nor a quotient or remainder.
        """
        result = Linear((), form.constant)
        for name, coefficient in form.coefficients.items():
            if name not in form.terms:
                result = result + axes.get(name, Linear()) * coefficient
                continue
            term = form.terms[name]
            if term.op == "any":
                raise UnsupportedWorkload(f"index {name} is no sum of multiples of axes")
            operand = self.of_form(term.operand, axes)
            divide = self.quotient if term.op == "floordiv" else self.remainder
            result = result + divide(operand, term.divisor) * coefficient
        return result

    def of_expression(self, expression: IntExpr, axes: Mapping[str, Linear]) -> Linear:
        """An index expression, given the axes of its statement.

        Raises:
            UnsupportedWorkload: two axes are multiplied, or something divided by one.
        """
        op, arguments = expression.op, expression.args
        if op == "const":
            return Linear((), arguments[0])
        if op == "var":
            return axes.get(arguments[0], Linear())
        parts = [self.of_expression(argument, axes) for argument in arguments]
        if op == "add":
            return sum(parts[1:], parts[0])
        if op in ("min", "max"):
            combine = self.smaller if op == "min" else self.larger
            result = parts[0]
            for part in parts[1:]:
                result = combine(result, part)
            return result
        if op == "mul":
            return _product(parts, expression)
        if op in ("floordiv", "mod") and not parts[1].terms and parts[1].constant > 0:
            divide = self.quotient if op == "floordiv" else self.remainder
            return divide(parts[0], parts[1].constant)
        raise UnsupportedWorkload(f"index {expression} is no sum of multiples of axes")


def _narrowed(known: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Return what two ranges share; the first one where they share nothing."""
    found = max(known[0], other[0]), min(known[1], other[1])
    return found if found[0] <= found[1] else known


def _product(parts: list[Linear], expression: IntExpr) -> Linear:
    result = Linear((), 1)
    for part in parts:
        if part.terms and result.terms:
            raise UnsupportedWorkload(f"index {expression} multiplies two axes")
        result = part * result.constant if part.terms else result * part.constant
    return result

"""Sums of products: matrices, and any indices that are summed over."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import Binary, Cast, ScalarExpr, const, var
from autotune.ir.workloads import Axis, Stage, Tensor
from autotune.networks.graph.elementwise import binary, cast, common_shape
from autotune.networks.graph.graph import Value, constant
from autotune.networks.graph.making import HALVES, load, program, rounded, spatial
from autotune.networks.graph.movement import reshape, transpose
from autotune.networks.graph.reductions import reduce

__all__ = ["contract", "einsum", "matmul", "matmul_integer"]


def contract(
    name: str, left: Value, right: Value, letters: tuple[str, str, str], dtype: str | None = None
) -> Value:
    """The sum of products over the letters that are not in the result.

    Args:
        name: Name of the workload.
        left: A tensor.
        right: Another one.
        letters: A letter for each axis of the left one, of the right one, and of the result. An
            extent of 1 goes with any other.
        dtype: Type of the result; that of ``left`` by default. Halves are added up in float32.

    Raises:
        InvalidValueError: extents of a letter differ, or a letter is in the result alone.
    """
    extents = _extents(((letters[0], left), (letters[1], right)))
    if set(letters[2]) - set(extents):
        raise InvalidValueError(f"{letters[2]!r} has letters that no operand has")
    summed = [it for it in extents if it not in letters[2]]
    wanted = dtype or left.dtype
    total = "float32" if wanted in HALVES else wanted
    shape = tuple(extents[it] for it in letters[2])
    if 0 in extents.values():
        zeros = np.zeros(shape, element_type(wanted).dtype)
        return constant(zeros, wanted)

    names = {it: f"i{at}" for at, it in enumerate(letters[2])}
    names |= {it: f"k{at}" for at, it in enumerate(summed)}

    def element(tensor: Tensor, places: str) -> ScalarExpr:
        indices = [
            const(0) if extent < extents[letter] else var(names[letter])
            for letter, extent in zip(places, tensor.shape, strict=True)
        ]
        found = load(tensor, indices)
        return found if tensor.dtype == total else Cast(total, found)

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        axes = [Axis(names[it], extents[it]) for it in letters[2]]
        axes += [Axis(names[it], extents[it], "reduce") for it in summed]
        body = Binary("mul", element(given[0], letters[0]), element(given[1], letters[1]))
        combiner = "add" if summed else None
        stage = Stage(Tensor("y", shape, total), tuple(axes), body, combiner)
        return rounded([stage], wanted)

    return program(name, [left, right], stages)


def _extents(operands: Sequence[tuple[str, Value]]) -> dict[str, int]:
    """The extent of each letter, in the order in which letters occur."""
    extents: dict[str, int] = {}
    for letters, value in operands:
        if len(letters) != value.rank:
            raise InvalidValueError(f"{letters!r} does not name the axes of {value!r}")
        for letter, extent in zip(letters, value.shape, strict=True):
            known = extents.get(letter, 1)
            if known != extent and 1 not in (known, extent):
                raise InvalidValueError(f"{letter!r} is {known}, and in {value!r} {extent}")
            extents[letter] = extent if known == 1 else known
    return extents


def matmul(left: Value, right: Value, dtype: str | None = None) -> Value:
    """The product of matrices in the last two axes, as numpy's: vectors are rows or columns.

    Args:
        left: ``[..., m, k]``, or ``[k]``.
        right: ``[..., k, n]``, or ``[k]``; the other axes broadcast.
        dtype: Type of the result; that of ``left`` by default.

    Raises:
        InvalidValueError: the shapes do not fit.
    """
    if left.rank == 0 or right.rank == 0:
        raise InvalidValueError(f"{left!r} and {right!r} are no matrices")
    if left.shape[-1] != right.shape[max(0, right.rank - 2)]:
        raise InvalidValueError(f"{left!r} and {right!r} have no product")
    outer = [value.shape[:-2] for value in (left, right)]
    batch = common_shape(outer)
    names = [chr(ord("A") + at) for at in range(len(batch))]
    first = [*names[len(batch) - len(outer[0]) :], *(["i"] if left.rank > 1 else []), "k"]
    second = [*names[len(batch) - len(outer[1]) :], "k", *(["j"] if right.rank > 1 else [])]
    result = [*names, *(["i"] if left.rank > 1 else []), *(["j"] if right.rank > 1 else [])]
    if left.rank > 2 >= right.rank and left.size:
        # Rows of all matrices are rows of one: the form that everything is tuned for.
        found = matmul(reshape(left, (-1, left.shape[-1])), right, dtype)
        return reshape(found, (*left.shape[:-1], *right.shape[1:]))
    letters = "".join(first), "".join(second), "".join(result)
    return contract("matmul", left, right, letters, dtype)


def matmul_integer(
    left: Value, right: Value, left_zero: Value | None = None, right_zero: Value | None = None
) -> Value:
    """The product (int32) of matrices of bytes less their zero points.

    The product is that of the bytes, and zero points are subtracted from it: ``(a - p)(b - q) =
    ab - p sum(b) - q sum(a) + kpq``, where of constants all but the first is known.

    Args:
        left: ``[..., m, k]`` of bytes.
        right: ``[..., k, n]`` of bytes.
        left_zero: A number, or one for each row: ``[m]`` or ``[..., m, 1]``.
        right_zero: A number, or one for each column: ``[n]`` or ``[..., 1, n]``.
    """
    found = matmul(left, right, "int32")
    p = _zero(left_zero, column=True) if left.rank > 1 else _zero(left_zero, column=False)
    q = _zero(right_zero, column=False)
    if p is not None:
        sums = reduce("add", cast(right, "int32"), [max(0, right.rank - 2)], right.rank > 1)
        found = binary("sub", found, binary("mul", p, sums))
    if q is not None:
        sums = reduce("add", cast(left, "int32"), [-1], left.rank > 1)
        found = binary("sub", found, binary("mul", sums, q))
    if p is not None and q is not None:
        found = binary("add", found, binary("mul", binary("mul", p, q), left.shape[-1]))
    return found


def _zero(value: Value | None, column: bool) -> Value | None:
    """A zero point as int32 that broadcasts; None where it is 0."""
    if value is None or (value.constant is not None and not value.constant.any()):
        return None
    wide = cast(value, "int32")
    if wide.size == 1:
        return reshape(wide, ())
    return reshape(wide, (-1, 1)) if column and wide.rank == 1 else wide


def einsum(equation: str, *operands: Value, dtype: str | None = None) -> Value:
    """Einstein's sum, as numpy's ``einsum``; ``...`` stands for axes that broadcast.

    Operands are combined from the first to the last, two at a time.

    Raises:
        InvalidValueError: the equation does not fit the operands.
    """
    terms, result = _terms(equation, operands)
    values = list(operands)
    if len(terms) != len(values):
        raise InvalidValueError(f"{equation!r} is not of {len(values)} operands")
    pairs = [_diagonal(value, term) for value, term in zip(values, terms, strict=True)]
    value, term = pairs[0]
    for number, (other, letters) in enumerate(pairs[1:], start=1):
        needed = {*result, *(it for _, later in pairs[number + 1 :] for it in later)}
        kept = "".join(it for it in dict.fromkeys(term + letters) if it in needed)
        if number == len(pairs) - 1:
            kept = result
        value = contract("einsum", value, other, (term, letters, kept), dtype)
        term = kept
    left_out = [at for at, letter in enumerate(term) if letter not in result]
    if left_out:
        value = reduce("add", value, left_out, False, dtype)
        term = "".join(it for it in term if it in result)
    return transpose(value, [term.index(it) for it in result])


def _terms(equation: str, operands: Sequence[Value]) -> tuple[list[str], str]:
    """Letters of each operand and of the result, with capitals nobody uses for ``...``."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [chr(code) for code in range(0x100, 0x180)]
    longest = max(
        (
            value.rank - len(term.replace("...", ""))
            for term, value in zip(terms, operands, strict=False)
            if "..." in term
        ),
        default=0,
    )

    def spelt(term: str, rank: int) -> str:
        count = rank - len(term.replace("...", ""))
        return term.replace("...", "".join(free[longest - count : longest]))

    spelled = [spelt(term, value.rank) for term, value in zip(terms, operands, strict=False)]
    if not arrow:
        every = "".join(spelled)
        single = sorted({it for it in every if every.count(it) == 1 and it not in free})
        return spelled, "".join(free[:longest]) + "".join(single)
    return spelled, result.replace("...", "".join(free[:longest]))


def _diagonal(value: Value, letters: str) -> tuple[Value, str]:
    """A tensor whose axes have different letters: of equal ones the diagonal."""
    if len(set(letters)) == len(letters):
        return value, letters
    kept = "".join(dict.fromkeys(letters))
    extents = _extents([(letters, value)])
    shape = tuple(extents[it] for it in kept)

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        body = load(given[0], [var(f"i{kept.index(it)}") for it in letters])
        return [Stage(Tensor("y", shape, value.dtype), spatial(shape), body)]

    return program("diagonal", [value], stages), kept

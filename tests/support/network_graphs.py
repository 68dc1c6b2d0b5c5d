"""Operations of graphs, run in every way there is: folded, evaluated, compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.ir.element_types import element_type
from autotune.networks.graph import Graph, Value, constant, evaluate, input_value
from autotune.networks.plan.cpu_network import compile_network
from autotune.targets import Target, detect_cpu

Array = NDArray[Any]
Build = Callable[..., Value | Sequence[Value]]

INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 0.5, 2.5, -3.5)


@cache
def _machine() -> Target:
    return detect_cpu()


def drawn(shape: Sequence[int], dtype: str, seed: int = 0, special: bool = False) -> Array:
    """Random elements, as programs have them: integers from all of their range."""
    rng = np.random.default_rng(seed)
    element = element_type(dtype)
    if element.is_float:
        values = rng.standard_normal(tuple(shape)) * 3
        if special:
            values = np.where(
                rng.random(values.shape) < 0.4, rng.choice(SPECIAL, values.shape), values
            )
        return element.stored(values)
    if dtype == "bool":
        return rng.integers(0, 2, tuple(shape)).astype(np.bool_)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, tuple(shape), dtype, endpoint=True)


def numbers(value: Value) -> Array:
    """Numbers that a constant holds."""
    assert value.constant is not None and value.constant.shape == value.shape
    return element_type(value.dtype).numbers(value.constant)


def folded(build: Build, *arrays: Array) -> list[Array]:
    """Result of an operation on constants."""
    made = build(*map(constant, arrays))
    return [numbers(it) for it in ([made] if isinstance(made, Value) else made)]


def check_compiled(build: Build, *operands: tuple[Array, str]) -> None:
    """Check that evaluated and compiled graphs compute what folding does.

    Args:
        build: From a value for each operand to results.
        operands: Elements as programs have them, and their type.
    """
    values = [input_value(f"x{at}", it.shape, dtype) for at, (it, dtype) in enumerate(operands)]
    made = build(*values)
    outputs = {str(at): it for at, it in enumerate([made] if isinstance(made, Value) else made)}
    known = build(*(constant(array, dtype) for array, dtype in operands))
    wanted = [known] if isinstance(known, Value) else known
    graph = Graph(tuple(values), outputs)
    given = {it.name: array for it, (array, _) in zip(values, operands, strict=True)}
    evaluated = evaluate(graph, given)
    compiled = compile_network(graph, {}, _machine(), 1).run(given)
    for (name, output), right in zip(outputs.items(), wanted, strict=True):
        assert (output.shape, output.dtype) == (right.shape, right.dtype)
        np.testing.assert_array_equal(evaluated[name], right.constant)
        _check_close(compiled[name], right)


def _check_close(found: Array, right: Value) -> None:
    element = element_type(right.dtype)
    assert found.dtype == element.dtype and found.shape == right.shape
    if not element.is_float:
        np.testing.assert_array_equal(found, right.constant)
        return
    bound = 32 * element.eps
    wide = element.numbers(found).astype(np.float64)
    np.testing.assert_allclose(wide, numbers(right).astype(np.float64), rtol=bound, atol=bound)

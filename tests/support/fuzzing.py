"""Wrong arguments in great number: what tests of the native bindings throw at them.

A binding may refuse what it is given with one of ``REFUSALS`` and nothing else; above all, the
process must survive. Run under AddressSanitizer and UndefinedBehaviorSanitizer (``tox -e
sanitize``) an access out of bounds or an undefined operation ends the process.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

REFUSALS = (TypeError, ValueError, OverflowError, MemoryError)

CASES = int(os.environ.get("AUTOTUNE_FUZZ_CASES", "250"))
"""Seeds of every fuzz test; the sanitizers' environment sets more."""

OPERATION_COUNT = 8
SIMD_LEVELS = ("best", "baseline", "avx2", "avx512")

_INTEGERS = (-(2**63) - 1, -(2**63), -(2**31), -1, 0, 1, 2, 255, 65536, 2**31, 2**63, 2**64)
_FLOATS = (float("nan"), float("inf"), -float("inf"), 5e-324, 1.7e308, -1.0, 0.0, 2.0**53)
_DTYPES = ("b1", "i1", "i4", "i8", "u1", "u8", "f2", "f4", "f8", "c16", "U3", "O")
_STRANGERS = (None, "text", b"bytes", object(), 3, 2.5, [1, 2], [[1.0], [2.0]], {}, [None])


def attempt(call: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """The result of a call, or None where it was refused as it should be."""
    try:
        return call(**arguments)
    except REFUSALS:
        return None


def mutated(rng: np.random.Generator, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, often as they are, else with one or two of them made wrong."""
    result = dict(arguments)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Conversions that lose something are the point.
        warnings.simplefilter("ignore")
        for _ in range(int(rng.choice([0, 0, 1, 1, 2]))):
            name = str(rng.choice(list(result)))
            result[name] = _mutate(rng, result[name])
    return result


def simd_level(rng: np.random.Generator) -> str:
    """Any level's name, also of those that this processor lacks."""
    return SIMD_LEVELS[int(rng.integers(len(SIMD_LEVELS)))]


def integers(
    rng: np.random.Generator, shape: tuple[int, ...], *, extreme: float = 0.05
) -> NDArray[np.int64]:
    """Small positive integers, a few of them replaced by any 64-bit value."""
    values = rng.integers(1, 1 + 2 ** int(rng.integers(1, 12)), shape)
    huge = rng.integers(-(2**63), 2**63 - 1, shape) >> rng.integers(0, 64, shape)
    return np.where(rng.random(shape) < extreme * rng.integers(0, 2), huge, values)


def numbers(
    rng: np.random.Generator, shape: tuple[int, ...], *, extreme: float = 0.05
) -> NDArray[np.float64]:
    """Positive numbers of all magnitudes, a few of them replaced by NaN, infinities and such."""
    values = np.exp2(rng.uniform(-3, 12, shape))
    strange = rng.choice(np.array(_FLOATS), shape)
    return np.where(rng.random(shape) < extreme * rng.integers(0, 2), strange, values)


def tape_arguments(rng: np.random.Generator, *, inputs: int | None = None) -> dict[str, Any]:
    """Arguments of a ``TapeProgram`` that it accepts, unless the level is not available."""
    count = int(rng.integers(0, 7)) if inputs is None else inputs
    constants = integers(rng, (int(rng.integers(0, 6)),))
    length = int(rng.integers(0, 40))
    known = count + len(constants)
    if known == 0:
        length = 0
    operands = np.zeros((length, 3), np.int32)
    for index in range(length):
        operands[index] = rng.integers(0, known + index, 3)
    slots = known + length
    outputs = rng.integers(0, slots, int(rng.integers(0, 9))) if slots else np.zeros(0)
    return {
        "inputs": count,
        "constants": constants,
        "operations": rng.integers(0, OPERATION_COUNT, length).astype(np.uint8),
        "operands": operands,
        "outputs": outputs.astype(np.int32),
        "simd": simd_level(rng),
    }


def row_count(rng: np.random.Generator) -> int:
    """Numbers of rows around the size of a block, and none."""
    return int(rng.choice([0, 1, 2, 63, 64, 65, 130, 200]))


def thread_count(rng: np.random.Generator) -> int:
    """A few threads."""
    return int(rng.integers(1, 5))


def _mutate(rng: np.random.Generator, value: Any) -> Any:
    if rng.random() < 0.1:
        return _STRANGERS[int(rng.integers(len(_STRANGERS)))]
    if isinstance(value, np.ndarray):
        changes = (_retyped, _reshaped, _strided, _resized, _spoiled, _spoiled)
        return changes[int(rng.integers(len(changes)))](rng, value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return _INTEGERS[int(rng.integers(len(_INTEGERS)))]
    if isinstance(value, float):
        return _FLOATS[int(rng.integers(len(_FLOATS)))]
    if isinstance(value, (list, tuple)):
        return _other_list(rng, list(value))
    if isinstance(value, str):
        return str(rng.choice(["", "best", value * 2, "\0", "\N{SNOWMAN}" * 300]))
    return None


def _retyped(rng: np.random.Generator, array: NDArray[Any]) -> Any:
    name = str(rng.choice(_DTYPES))
    changed = array.astype(name)
    return changed.astype(changed.dtype.newbyteorder()) if rng.random() < 0.2 else changed


def _reshaped(rng: np.random.Generator, array: NDArray[Any]) -> Any:
    choice = int(rng.integers(4))
    if choice == 0:
        return np.ascontiguousarray(array.T)
    return array.ravel() if choice == 1 else array[None] if choice == 2 else array[..., None]


def _strided(rng: np.random.Generator, array: NDArray[Any]) -> Any:
    """The same values, or some of them, at other strides or read-only."""
    choice = int(rng.integers(6))
    if choice == 0:
        return np.asfortranarray(array)
    if choice == 1:
        return np.repeat(array, 2, axis=0)[::2]
    if choice == 2:
        return array[::-1]
    if choice == 3:
        return np.broadcast_to(array[:1], array.shape) if array.size else array
    if choice == 4 and array.dtype.kind != "O":  # Not at a multiple of the elements' size.
        return np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:].view(array.dtype)
    frozen = array.copy()
    frozen.flags.writeable = False
    return frozen


def _resized(rng: np.random.Generator, array: NDArray[Any]) -> Any:
    choice = int(rng.integers(4))
    if choice == 0:
        return array[:0]
    if choice == 1:
        return array[:-1]
    if choice == 2:
        return np.concatenate([array, array], axis=array.ndim - 1)
    return np.concatenate([array, array[:1]])


def _spoiled(rng: np.random.Generator, array: NDArray[Any]) -> Any:
    """Some entries replaced by extreme values of their type."""
    spoiled = array.copy()
    if array.dtype.kind == "f":
        values = np.array(_FLOATS).astype(array.dtype)
    elif array.dtype.kind not in "iu":
        return spoiled
    else:
        limits = np.iinfo(array.dtype)
        chosen = (limits.min, limits.max, 0, 1, max(-1, limits.min), 7, 8, 1 << 6)
        values = np.array(chosen, dtype=array.dtype)
    flat = spoiled.reshape(-1)
    for _ in range(int(rng.integers(1, 4)) if flat.size else 0):
        flat[int(rng.integers(flat.size))] = rng.choice(values)
    return spoiled


def _other_list(rng: np.random.Generator, values: list[Any]) -> Any:
    choice = int(rng.integers(5))
    if choice == 0:
        return []
    if choice == 1:
        return values[:-1]
    if choice == 2:
        return values * 3
    if choice == 3:
        return [*values[:-1], None]
    place = int(rng.integers(max(1, len(values))))
    return [*values[:place], float(rng.choice(np.array(_FLOATS))), *values[place + 1 :]]

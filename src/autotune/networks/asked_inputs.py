"""Lengths of axes and values of inputs that a person gives for a model that leaves them open."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError

__all__ = ["AskedInputs", "DeclaredInput", "FixedInputs", "loaded", "read_asked"]

Array = NDArray[Any]

_MOST_ELEMENTS = 2**31
_SHAPE = re.compile(r"[0-9]{1,18}(,[0-9]{1,18})*,?")
_NUMBERS = {"true": True, "false": False}


def _checked_dims(dims: Mapping[str, int]) -> dict[str, int]:
    for name, length in dims.items():
        is_whole = isinstance(length, int) and not isinstance(length, bool)
        if not (is_whole and 1 <= length < _MOST_ELEMENTS):
            raise InvalidValueError(
                f"the length of axis {name!r} is a whole number from 1 on, not {length!r}"
            )
    return dict(dims)


def _checked_inputs(inputs: Mapping[str, object]) -> dict[str, object]:
    return {name: _checked_value(name, value) for name, value in inputs.items()}


def _checked_value(name: str, value: object) -> object:
    if isinstance(value, tuple):
        lengths = all(isinstance(it, int) and not isinstance(it, bool) for it in value)
        if lengths and all(it >= 1 for it in value) and math.prod(value) <= _MOST_ELEMENTS:
            return value
        raise InvalidValueError(
            f"the shape of input {name!r} is of whole numbers from 1 on and of at most "
            f"{_MOST_ELEMENTS} elements, not {value!r}"
        )
    if isinstance(value, str):
        return Path(value)
    if isinstance(value, (bool, int, float, Path)) or hasattr(value, "shape"):
        return value
    raise InvalidValueError(
        f"input {name!r} is given by a shape (a tuple), an array, the path of a .npy file, or a "
        f"number that is baked in, not by {type(value).__name__}"
    )


@frozen(kw_only=True, eq=False)
class AskedInputs:
    """Wishes of a person for the inputs of a model.

    Attributes:
        dims: Lengths of axes by the names that the model has for them.
        inputs: By name of the input: its shape, a tuple; an array, or the path of a ``.npy`` file,
            that is its example; or a number that is its value in every call.
    """

    dims: Mapping[str, int] = field(factory=dict, converter=_checked_dims)
    inputs: Mapping[str, object] = field(factory=dict, converter=_checked_inputs)

    def __bool__(self) -> bool:
        return bool(self.dims or self.inputs)


@frozen(eq=False)
class DeclaredInput:
    """An input as a model declares it.

    Attributes:
        name: Of the input.
        shape: Lengths; of an open axis its name, or "" where it has none.
        dtype: A name of numpy or ``ml_dtypes``.
        example: What the model says that it is called with, or None.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    example: Array | None = None


@frozen(eq=False)
class FixedInputs:
    """Inputs of fixed shapes.

    Attributes:
        shapes: Of the inputs that are left, in order.
        examples: What they are called with; None where nobody gave any.
        constants: Values of the other inputs, which are the same in every call.
        lengths: Of the open axes, by name.
        remarks: What was chosen that nobody gave, a line each.
    """

    shapes: Mapping[str, tuple[int, ...]]
    examples: tuple[Array, ...] | None
    constants: Mapping[str, Array] = field(factory=dict)
    lengths: Mapping[str, int] = field(factory=dict)
    remarks: tuple[str, ...] = ()


def read_asked(dims: Sequence[str], inputs: Sequence[str]) -> AskedInputs:
    """Read texts of a command line.

    Args:
        dims: ``batch=1``, or several with commas between them.
        inputs: ``x=1,3,320,480`` (a shape), ``x=FILE.npy`` or ``sr=16000`` (a value), one each.

    Raises:
        InvalidValueError: a text is of another form, or a name is there twice.
    """
    lengths: dict[str, int] = {}
    for text in (it for each in dims for it in each.split(",")):
        name, value = _assigned(text, "--dim", "NAME=LENGTH")
        if not re.fullmatch(r"[0-9]{1,18}", value):
            raise InvalidValueError(f"--dim: {name} must be a whole number, not {value!r}")
        _add(lengths, name, int(value), "--dim")
    found: dict[str, object] = {}
    for text in inputs:
        form = "NAME=SHAPE, NAME=FILE.npy or NAME=VALUE"
        name, value = _assigned(text, "--input", form)
        _add(found, name, _value(name, value), "--input")
    return AskedInputs(dims=lengths, inputs=found)


def _assigned(text: str, option: str, form: str) -> tuple[str, str]:
    name, _, value = (part.strip() for part in text.partition("="))
    if not (name and value):
        raise InvalidValueError(f"{option} {text!r} is not of the form {form}")
    return name, value


def _add(found: dict[str, Any], name: str, value: object, option: str) -> None:
    if name in found:
        raise InvalidValueError(f"{option} names {name!r} twice")
    found[name] = value


def _value(name: str, text: str) -> object:
    """A shape, a number, or a path."""
    if "," in text and _SHAPE.fullmatch(text):
        return tuple(int(it) for it in text.split(",") if it)
    if text.lower() in _NUMBERS:
        return _NUMBERS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    if not text.endswith(".npy"):
        raise InvalidValueError(
            f"--input: {name} is a shape (1,3,320,480), a file (FILE.npy) or a number, not "
            f"{text!r}"
        )
    return Path(text)


def loaded(name: str, value: object) -> object:
    """Wish for an input, with the array of a file in place of its path.

    Raises:
        InvalidValueError: there is no such file, or it holds no array.
    """
    if not isinstance(value, Path):
        return value
    try:
        found = np.load(value, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise InvalidValueError(
            f"input {name!r}: {str(value)!r} cannot be read as an array: {error}"
        ) from error
    if not isinstance(found, np.ndarray):
        raise InvalidValueError(f"input {name!r}: {str(value)!r} holds several arrays, not one")
    return found

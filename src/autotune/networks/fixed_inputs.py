"""Inputs of a model: what it declares, what a person asks for, and the fixed shapes of both."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.runtime.arrays import (
    NetworkTensor,
    as_numpy,
    check_examples,
    numpy_type,
    random_examples,
)

__all__ = ["AskedInputs", "DeclaredInput", "FixedInputs", "fix_inputs", "read_asked"]

Array = NDArray[Any]


def fix_inputs(
    declared: Sequence[DeclaredInput],
    asked: AskedInputs,
    examples: Sequence[object] | None,
    what: str,
) -> FixedInputs:
    """Give every axis a length, and every input that is asked for a value or an example.

    An axis is as long as is asked for by its name, or as in an input that is given. One that is
    left open is as long as in the model's own example, or 1 if it comes first in an input: that is
    a remark.

    Args:
        declared: The inputs of the model, in order.
        asked: What a person says of them.
        examples: What it is called with, for all inputs, or all but those with a value; None
            where that was not given.
        what: What a person calls the model.

    Raises:
        UnknownNameError: there is no such input or axis; names those that there are.
        InvalidValueError: a shape, value or example is not one of its input, or two of them say
            different lengths of an axis.
        UnsupportedWorkload: an axis has no length; shows the option that gives it.
    """
    _check_names(declared, asked, what)
    lengths = _Lengths(what, dict(asked.dims))
    constants: dict[str, Array] = {}
    given: dict[str, Array] = {}
    left = []
    for one in declared:
        value = loaded(one.name, asked.inputs.get(one.name))
        if _is_constant(one, value):
            constants[one.name] = _constant(one, value)
            continue
        left.append(one)
        if hasattr(value, "shape"):
            given[one.name] = as_numpy(value)
    if examples is not None:
        given = {**_by_name(left, examples, what), **given}
    own = {it.name: it.example for it in left if it.example is not None}
    shapes = {}
    for one in left:
        value = asked.inputs.get(one.name)
        if isinstance(value, (tuple, int)):
            shapes[one.name] = lengths.take(one, _as_shape(value))
        elif one.name in given:
            shapes[one.name] = lengths.take(one, given[one.name].shape)
    lengths.choose([it for it in left if it.name not in shapes])
    shapes = {it.name: shapes.get(it.name) or lengths.of(it) for it in left}
    found = _examples(left, shapes, given, own) if given or own else None
    return FixedInputs(shapes, found, constants, lengths.found, tuple(lengths.remarks))


@define(eq=False)
class _Lengths:
    """Lengths of open axes, as they become known."""

    what: str
    found: dict[str, int]
    remarks: list[str] = field(factory=list)
    unnamed: dict[tuple[str, int], int] = field(factory=dict)

    def take(self, one: DeclaredInput, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that is given for an input, which says the lengths of its open axes."""
        if len(shape) != len(one.shape):
            raise InvalidValueError(
                f"input {one.name!r} of {self.what} has {len(one.shape)} axes, "
                f"{_listed(one.shape)}, and not the {len(shape)} of {list(shape)}"
            )
        for at, (axis, length) in enumerate(zip(one.shape, shape, strict=True)):
            wanted = self.found.setdefault(axis, length) if isinstance(axis, str) else axis
            if axis != "" and wanted != length:
                name = f" ({axis!r})" if isinstance(axis, str) else ""
                raise InvalidValueError(
                    f"axis {at}{name} of input {one.name!r} of {self.what} is of length {wanted}, "
                    f"and {length} in {list(shape)}"
                )
        self.found.pop("", None)
        return tuple(shape)

    def choose(self, left: Sequence[DeclaredInput]) -> None:
        """Lengths of what nobody gave: those of the model's examples, then that of first axes."""
        for one in left:
            if one.example is not None:
                for at, length in enumerate(one.example.shape):
                    self._choose(one, at, length)
        for one in left:
            if one.shape:
                self._choose(one, 0, 1)
        self._check_all(left)

    def _choose(self, one: DeclaredInput, at: int, length: int) -> None:
        """Give an axis a length, unless it has one."""
        axis = one.shape[at]
        if self._axes(one)[at] is not None:
            return
        if axis:
            self.found[str(axis)] = length
            self._say(f"axis {axis!r}", length, f"--dim {axis}=N")
        else:
            self.unnamed[one.name, at] = length
            form = ",".join(str(it) or "N" for it in one.shape)
            self._say(f"axis {at} of input {one.name!r}", length, f"--input {one.name}={form}")

    def of(self, one: DeclaredInput) -> tuple[int, ...]:
        """The shape of an input whose axes are all known."""
        return tuple(length for length in self._axes(one) if length is not None)

    def _axes(self, one: DeclaredInput) -> list[int | None]:
        """The lengths of an input's axes; None for those that nobody gave."""
        named = [axis if isinstance(axis, int) else self.found.get(axis) for axis in one.shape]
        return [self.unnamed.get((one.name, at), length) for at, length in enumerate(named)]

    def _say(self, axis: str, length: int, option: str) -> None:
        self.remarks.append(
            f"{self.what} leaves the length of {axis} open: it is {length} ({option} for another)"
        )

    def _check_all(self, left: Sequence[DeclaredInput]) -> None:
        inputs, options = [], []
        for one in left:
            axes = self._axes(one)
            if None not in axes:
                continue
            inputs.append(repr(one.name))
            open_axes = [axis for axis, length in zip(one.shape, axes, strict=True) if not length]
            if "" in open_axes:
                form = ",".join("N" if length is None else str(length) for length in axes)
                options.append(f"--input {one.name}={form}")
            else:
                options += [f"--dim {axis}=N" for axis in open_axes]
        if options:
            raise UnsupportedWorkload(
                f"input {', '.join(inputs)} of {self.what} has axes without a length, and "
                f"programs are tuned for one shape: give {' '.join(dict.fromkeys(options))} (in "
                "Python dims={...} or inputs={...}, or example inputs)"
            )


def _check_names(declared: Sequence[DeclaredInput], asked: AskedInputs, what: str) -> None:
    inputs = [it.name for it in declared]
    axes = {axis for it in declared for axis in it.shape if isinstance(axis, str) and axis}
    for name in asked.inputs:
        if name not in inputs:
            raise UnknownNameError(f"input of {what}", name, inputs)
    for name in asked.dims:
        if name not in axes:
            is_input = "; --input gives the shape of an input" if name in inputs else ""
            extra = "Only axes that the model names instead of a length have one to give"
            raise UnknownNameError(f"axis of {what}", name, axes, f"{extra}{is_input}.")


def _is_constant(one: DeclaredInput, value: object) -> bool:
    """Return whether a number is the value of an input, and not its length."""
    if isinstance(value, (bool, float)):
        return True
    is_single = all(axis == 1 for axis in one.shape)
    return isinstance(value, int) and (is_single or len(one.shape) != 1 or value < 1)


def _constant(one: DeclaredInput, value: Any) -> Array:
    if any(axis != 1 for axis in one.shape):
        raise InvalidValueError(
            f"input {one.name!r} has the axes {_listed(one.shape)}, and not one element: give its "
            f"shape, or a file, in place of {value!r}"
        )
    kind = numpy_type(one.dtype)
    shape = tuple(1 for _ in one.shape)
    with np.errstate(all="ignore"):
        try:
            found = np.full(shape, value).astype(kind)
            is_exact = kind.kind not in "iub" or found.item() == value
        except (OverflowError, ValueError):
            is_exact = False
    if not is_exact:
        raise InvalidValueError(f"input {one.name!r} is {one.dtype}, and cannot be {value!r}")
    return found


def _as_shape(value: Any) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


def _by_name(
    left: Sequence[DeclaredInput], examples: Sequence[object], what: str
) -> dict[str, Array]:
    if len(examples) != len(left):
        names = ", ".join(it.name for it in left)
        raise InvalidValueError(f"{len(examples)} example inputs; {what} takes {names}")
    pairs = zip(left, examples, strict=True)
    return {it.name: as_numpy(value) for it, value in pairs}


def _examples(
    left: Sequence[DeclaredInput],
    shapes: Mapping[str, tuple[int, ...]],
    given: Mapping[str, Array],
    own: Mapping[str, Array],
) -> tuple[Array, ...] | None:
    """Return given examples, else the model's own of that shape, else random numbers."""
    tensors = [NetworkTensor(it.name, shapes[it.name], it.dtype) for it in left]
    found = []
    for tensor, random in zip(tensors, random_examples(tensors), strict=True):
        known = [it[tensor.name] for it in (given, own) if tensor.name in it]
        fitting = (it for it in known if it.shape == tensor.shape)
        found.append(next(fitting, random))
    return check_examples(tensors, found)


def _listed(shape: Sequence[int | str]) -> str:
    return f"[{', '.join(str(axis) or '?' for axis in shape)}]"


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

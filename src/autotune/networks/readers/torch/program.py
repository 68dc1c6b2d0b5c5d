"""From a module or a file, and what it is called with, to an exported program of fixed shapes.

Its tensors are values in the memory in which they are.
"""

from __future__ import annotations

import dataclasses
import io
import os
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_leaves, tree_map, tree_unflatten

from autotune.errors import InvalidValueError, UnsupportedWorkload, one_line
from autotune.ir.element_types import ELEMENT_TYPES
from autotune.networks.fixed_inputs import DeclaredInput, FixedInputs
from autotune.networks.graph import Value
from autotune.networks.readers.torch.operators.complex_pairs import Pair
from autotune.runtime.arrays import as_numpy

__all__ = [
    "arguments",
    "as_tensor",
    "declared",
    "example_tensors",
    "exported",
    "for_shapes",
    "input_names",
    "is_input",
    "kept",
    "on_cpu",
    "open_program",
    "plain_array",
    "quiet_torch",
    "stored_value",
    "taken_apart",
    "type_name",
]


def exported(model: torch.nn.Module, examples: Sequence[object]) -> tuple[Any, tuple[Any, ...]]:
    """A module traced with example inputs, and these as its arguments.

    What it returns is taken apart where torch does not know how: fields of dataclasses, items of
    what can be listed.

    Raises:
        UnsupportedWorkload: torch cannot export it.
    """
    given = tuple(map(_as_argument, examples))
    try:
        return _traced(model, given), given
    except Exception as error:  # what a model's own code raises, among much else
        if "pytree" not in str(error) and "unsupported output type" not in str(error).lower():
            raise _cannot_trace(model, error) from error
    try:
        return _traced(_InParts(model), given), given
    except Exception as error:
        raise _cannot_trace(model, error) from error


def _traced(model: torch.nn.Module, given: tuple[Any, ...]) -> Any:
    said = io.StringIO()
    # Torch prints the graph as far as it has got when it cannot go on.
    with quiet_torch(), redirect_stderr(said), torch.no_grad():
        program = torch.export.export(model, given)
    sys.stderr.write(said.getvalue())
    return program


class _InParts(torch.nn.Module):  # type: ignore[misc]
    """A module whose outputs are made of what torch knows."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.train(model.training)

    def forward(self, *inputs: Any) -> Any:
        """Call the module, and take apart what it returns."""
        return taken_apart(self.model(*inputs))


def taken_apart(item: Any) -> Any:
    """Tuples and dictionaries of tensors, numbers and None, for what a model returns."""
    if isinstance(item, (torch.Tensor, bool, int, float, str, type(None))):
        return item
    if isinstance(item, Mapping):
        return {str(key): taken_apart(value) for key, value in item.items()}
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        names = [it.name for it in dataclasses.fields(item)]
        return {name: taken_apart(getattr(item, name)) for name in names}
    if hasattr(item, "__iter__"):
        return tuple(map(taken_apart, item))
    names = [*getattr(item, "__dict__", ()), *getattr(type(item), "__slots__", ())]
    held = {name: getattr(item, name, None) for name in names if not name.startswith("_")}
    return {name: taken_apart(value) for name, value in held.items()}


def _cannot_trace(model: torch.nn.Module, error: Exception) -> UnsupportedWorkload:
    name = type(model).__name__
    return UnsupportedWorkload(f"torch.export cannot trace {name}{_place(error)}: {_why(error)}")


def _why(error: Exception) -> str:
    """Say why torch cannot trace a model, and what to do."""
    if type(error).__name__ == "GuardOnDataDependentSymNode":
        return (
            "what it does there depends on the values of a tensor; compute both cases, and choose "
            "by torch.where"
        )
    reason = one_line(str(error), 300).rstrip(".") or type(error).__name__
    return f"{reason}; call the model on its example inputs to see whether it runs"


def _place(error: Exception) -> str:
    """The line of the model's own code that failed: `` at model.py:12``; "" where none is."""
    # Torch also runs code that it has made, which is in no file.
    others = (os.path.dirname(torch.__file__), __file__, "<")
    lines = [
        f" at {os.path.basename(frame.f_code.co_filename)}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(others)
    ]
    return lines[-1] if lines else ""


def _as_argument(value: object) -> Any:
    """An argument of a model: tensors as they are, arrays and numbers as tensors.

    One that has several tensors keeps its form, and each of them is an input of the network.
    """

    def converted(leaf: Any) -> Any:
        is_array = hasattr(leaf, "shape") and not isinstance(leaf, torch.Tensor)
        return as_tensor(as_numpy(leaf)) if is_array else leaf

    if any(hasattr(leaf, "shape") for leaf in tree_leaves(value)):
        return tree_map(converted, value)
    return as_tensor(as_numpy(value))


def on_cpu(program: Any) -> Any:
    """A program whose weights, and the tensors that it makes, are on the CPU."""
    from torch.export.passes import move_to_device_pass

    values = [node.meta.get("val") for node in program.graph.nodes]
    held = [*values, *program.state_dict.values(), *program.constants.values()]
    if all(it.device.type == "cpu" for it in held if isinstance(it, torch.Tensor)):
        return program
    return move_to_device_pass(program, "cpu")


def is_input(spec: Any) -> bool:
    """Tell if an input of a program is a tensor that its caller gives."""
    return spec.kind.name == "USER_INPUT" and type(spec.arg).__name__ == "TensorArgument"


def input_names(program: Any) -> list[str]:
    """Names of the inputs that are tensors, in order."""
    return [str(it.arg.name) for it in program.graph_signature.input_specs if is_input(it)]


def declared(program: Any) -> list[DeclaredInput]:
    """The inputs of a program that are tensors; axes of any length have the names of its graph."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    names = input_names(program)
    held = _own_examples(program)
    held = held if len(held) == len(names) else [None] * len(names)
    found = []
    for name, example in zip(names, held, strict=True):
        value = values[name]
        shape = tuple(it if isinstance(it, int) else str(it) for it in value.shape)
        dtype = type_name(value.dtype)
        array = None if example is None else as_numpy(example)
        found.append(DeclaredInput(name, shape, dtype, array))
    return found


def _own_examples(program: Any) -> list[Any]:
    if program.example_inputs is None:
        return []
    positional, named = program.example_inputs
    return example_tensors((*positional, *named.values()))


def example_tensors(values: Sequence[object]) -> list[Any]:
    """The tensors in example inputs, which may be nested as a model's arguments are."""
    return [value for value in tree_leaves(tuple(values)) if hasattr(value, "shape")]


def arguments(program: Any, tensors: Sequence[Any]) -> tuple[Any, Any]:
    """Arguments of a program; numbers and None are those with which it was traced."""
    left = iter(tensors)
    leaves = [
        next(left) if is_input(it) else getattr(it.arg, "value", None)
        for it in program.graph_signature.input_specs
        if it.kind.name == "USER_INPUT"
    ]
    if program.call_spec.in_spec is None:
        return tuple(leaves), {}
    found: tuple[Any, Any] = tree_unflatten(leaves, program.call_spec.in_spec)
    return found


def for_shapes(program: Any, fixed: FixedInputs, name: str) -> Any:
    """A program for inputs of these shapes: exported again where it was for others, too.

    Raises:
        UnsupportedWorkload: torch cannot export it for them.
    """
    if all(isinstance(axis, int) for it in declared(program) for axis in it.shape):
        return program
    left = iter(fixed.examples or ())
    names = input_names(program)
    dtypes = {it.name: it.dtype for it in declared(program)}
    arrays = [
        fixed.constants[it]
        if it in fixed.constants
        else next(left, None)
        if fixed.examples is not None
        else None
        for it in names
    ]
    tensors = [
        torch.zeros(fixed.shapes[it], dtype=getattr(torch, dtypes[it]))
        if array is None
        else as_tensor(np.array(array))
        for it, array in zip(names, arrays, strict=True)
    ]
    positional, named = arguments(program, tensors)
    try:
        with quiet_torch(), torch.no_grad():
            return torch.export.export(program.module(), positional, named)
    except Exception as error:  # whatever torch meets
        shapes = ", ".join(f"{it} {list(shape)}" for it, shape in fixed.shapes.items())
        raise UnsupportedWorkload(
            f"{name}: torch cannot export the model for inputs {shapes}: {_why(error)}"
        ) from error


_TENSORS_ONLY = {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "0"}


def open_program(path: Path) -> Any:
    """The exported program in a file.

    Pickles in it are read for tensors only; a file with objects of other kinds is refused.

    Raises:
        InvalidValueError: the file is damaged, of another kind, or has objects in it.
    """
    _check_archive(path)
    try:
        with quiet_torch(), _tensors_only():
            return torch.export.load(path)
    except Exception as error:  # whatever torch's reader meets
        raise InvalidValueError(
            f"{str(path)!r} cannot be read by torch {torch.__version__}: {one_line(str(error))}"
        ) from error


def _check_archive(path: Path) -> None:
    """Refuse archives with pickled objects, which would be executed while they are read."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise InvalidValueError(
            f"{str(path)!r} is no exported program of torch ({error}); torch.export.save writes "
            "such files"
        ) from error
    for entry in names:
        kind = entry.rsplit("/", 1)[-1]
        if "constants/" in entry and kind.startswith(("opaque_obj", "custom_obj")):
            raise InvalidValueError(
                f"{str(path)!r} holds a pickled object ({entry}): reading it would execute what "
                "the file says; load it with torch.export.load, and give the program itself"
            )


@contextmanager
def _tensors_only() -> Iterator[None]:
    """Inside, torch reads pickles for tensors only, whatever its own callers ask for."""
    before = {name: os.environ.get(name) for name in _TENSORS_ONLY}
    os.environ.update(_TENSORS_ONLY)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Torch's exporter warns of its own deprecated functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


Array = NDArray[Any]


def type_name(dtype: torch.dtype) -> str:
    """The name of an element type.

    Raises:
        UnsupportedWorkload: networks have no such type.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in ELEMENT_TYPES:
        raise UnsupportedWorkload(
            f"tensors of {name} are not supported; there are {', '.join(ELEMENT_TYPES)}"
        )
    return name


def plain_array(tensor: torch.Tensor) -> Array:
    """A tensor's elements as programs have them (bfloat16 as ``uint16``), not copied.

    Raises:
        UnsupportedWorkload: it is sparse, or of a type that networks do not have.
    """
    name = type_name(tensor.dtype)
    if tensor.layout != torch.strided:
        raise UnsupportedWorkload(f"tensors of layout {tensor.layout} are not supported")
    held = tensor.detach().cpu().resolve_conj().resolve_neg()
    if name == "bfloat16":
        return np.asarray(held.view(torch.int16).numpy()).view(np.uint16)
    return np.asarray(held.numpy())


def stored_value(tensor: torch.Tensor, name: str = "") -> Value | Pair:
    """A constant that shares the memory of a tensor; of complex numbers two."""
    if tensor.is_complex():
        held = torch.view_as_real(tensor.detach().resolve_conj())
        real, imaginary = (stored_value(held.select(-1, at), name) for at in (0, 1))
        assert isinstance(real, Value) and isinstance(imaginary, Value)
        return Pair(real, imaginary)
    return Value(tuple(tensor.shape), type_name(tensor.dtype), name, plain_array(tensor))


@contextmanager
def kept(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Tensors hold afterwards what they held before."""
    before = [(it, it.detach().clone()) for it in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)


def as_tensor(array: Array) -> torch.Tensor:
    """A copy of an array, of bfloat16 of ``ml_dtypes``, as a tensor."""
    native = array.astype(array.dtype.newbyteorder("="))
    if str(native.dtype) == "bfloat16":
        return torch.from_numpy(native.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(native.copy())

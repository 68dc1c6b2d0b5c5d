"""Arrays that networks are called with, for frontends: checked, aligned, and handed back."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.backends import ALIGNMENT, aligned_copy, dlpack, host_array
from autotune.errors import InvalidValueError

__all__ = [
    "NetworkTensor",
    "address_of",
    "aligned_inputs",
    "as_numpy",
    "check_examples",
    "converter_to",
    "handed_back",
    "located_inputs",
    "numpy_type",
    "random_examples",
    "read_array",
    "stored_array",
    "write_array",
]

Array = NDArray[Any]

_BFLOAT16 = "bfloat16"
_BFLOAT16_FILE = ".bfloat16.npy"


def numpy_type(name: str) -> np.dtype[Any]:
    """The numpy type of this name; bfloat16 is that of the package ``ml_dtypes``.

    Raises:
        InvalidValueError: the package is missing.
    """
    if name != _BFLOAT16:
        return np.dtype(name)
    try:
        found: np.dtype[Any] = np.dtype(getattr(import_module("ml_dtypes"), _BFLOAT16))
    except ImportError as error:
        raise InvalidValueError(
            "numpy has no bfloat16 without the package ml_dtypes: pip install ml_dtypes"
        ) from error
    return found


def as_numpy(value: Any) -> Array:
    """A numpy array of what a caller gave, in place where that is possible, else on the host.

    Raises:
        InvalidValueError: it is no array.
    """
    if isinstance(value, (list, tuple)) and any(hasattr(it, "__dlpack__") for it in value):
        raise InvalidValueError(
            f"an input is a {type(value).__name__} of {len(value)} arrays; give each by itself"
        )
    if hasattr(value, "detach"):
        value = value.detach()
    where = dlpack.device_of(value)
    if where is not None and where[0] != dlpack.CPU:
        value = value.cpu() if hasattr(value, "cpu") else value.numpy()
    if str(getattr(value, "dtype", "")) == f"torch.{_BFLOAT16}":
        bits = value.view(sys.modules["torch"].uint16)
        return as_numpy(bits).view(numpy_type(_BFLOAT16))
    try:
        array = np.from_dlpack(value) if hasattr(value, "__dlpack__") else host_array(value)
    except (BufferError, RuntimeError, TypeError, ValueError):
        array = host_array(value)
    if array.dtype == object:
        raise InvalidValueError(f"an input is of type {type(value).__name__}; inputs are arrays")
    return array


def aligned_inputs(inputs: Sequence[NetworkTensor], given: Sequence[Any]) -> list[Array]:
    """Inputs of a call as code may read them, which each begin at a multiple of 64 bytes.

    Raises:
        InvalidValueError: as of :func:`located_inputs`.
    """
    kinds = [numpy_type(tensor.dtype) for tensor in inputs]
    return [array for array, _ in located_inputs(inputs, kinds, given)]


def located_inputs(
    inputs: Sequence[NetworkTensor], kinds: Sequence[np.dtype[Any]], given: Sequence[Any]
) -> list[tuple[Array, int]]:
    """Inputs of a call as code may read them, each with its address: a multiple of 64 bytes.

    Arrays that are aligned and contiguous are taken as they are, others copied.

    Args:
        inputs: The tensors.
        kinds: Types of arrays as programs have them, which may be given, too.
        given: What a caller gave for them.

    Raises:
        InvalidValueError: one is missing, or of another shape or type.
    """
    if len(given) != len(inputs):
        names = ", ".join(repr(tensor.name) for tensor in inputs)
        raise InvalidValueError(f"{len(given)} inputs; the network takes {names}")
    return [_located(*each) for each in zip(inputs, kinds, given, strict=True)]


def _located(tensor: NetworkTensor, kind: np.dtype[Any], value: Any) -> tuple[Array, int]:
    is_plain = type(value) is np.ndarray and value.dtype == kind
    array: Array = value if is_plain else as_numpy(value)
    if array.shape != tensor.shape or (array.dtype != kind and str(array.dtype) != tensor.dtype):
        raise InvalidValueError(
            f"input {tensor.name!r} is {array.dtype}{list(array.shape)}; the network takes "
            f"{tensor.dtype}{list(tensor.shape)}"
        )
    array = array if array.dtype == kind else array.view(kind)
    if array.flags.c_contiguous and not (address := address_of(array)) % ALIGNMENT:
        return array, address
    array = aligned_copy(array)
    return array, address_of(array)


def address_of(array: Any) -> int:
    """Address of a contiguous array: faster than numpy says it, if it may be written to."""
    if array.flags.writeable and array.size and array.dtype.isbuiltin == 1:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    return int(array.ctypes.data)


def stored_array(array: Array, dtype: str) -> Array:
    """An array as programs have one of this type: bfloat16 as its bits."""
    is_wide = dtype == _BFLOAT16 and str(array.dtype) == _BFLOAT16
    return array.view(np.uint16) if is_wide else array


def handed_back(array: Array, dtype: str, like: Any) -> Any:
    """Convert what a program wrote for its caller.

    Args:
        array: As programs have it.
        dtype: Of its elements.
        like: The first input; None where there is none.

    Returns:
        A tensor of torch or an array of what else ``like`` is of, else one of numpy; in place.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        if dtype == _BFLOAT16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)
    if dtype == _BFLOAT16:
        return array.view(numpy_type(_BFLOAT16))
    return array if like is None or isinstance(like, np.ndarray) else converter_to(like)(array)


def converter_to(like: Any) -> Callable[[Any], Any]:
    """Return the maker of outputs as an input is: its package's ``from_dlpack``, or numpy's."""
    package = sys.modules.get(type(like).__module__.split(".")[0])
    if package in (None, np):
        return _array_of
    converter: Callable[[Any], Any] = getattr(package, "from_dlpack", _array_of)
    return converter


def _array_of(tensor: Any) -> Array:
    """A tensor as an array, in place where numpy has its type."""
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError):  # bfloat16
        return np.asarray(tensor.numpy())


def write_array(stem: str, array: Any) -> str:
    """Write an array to a file whose name begins so; returns its path, for :func:`read_array`."""
    given = as_numpy(array)
    is_bfloat16 = str(given.dtype) == _BFLOAT16
    path = f"{stem}{_BFLOAT16_FILE if is_bfloat16 else '.npy'}"
    np.save(path, given.view(np.uint16) if is_bfloat16 else given, allow_pickle=False)
    return path


def read_array(path: str) -> Array:
    """An array that :func:`write_array` wrote."""
    array: Array = np.load(path, allow_pickle=False)
    return array.view(numpy_type(_BFLOAT16)) if path.endswith(_BFLOAT16_FILE) else array


def check_examples(
    inputs: Sequence[NetworkTensor], examples: Sequence[object] | None
) -> tuple[Array, ...] | None:
    """Example inputs as arrays.

    Raises:
        InvalidValueError: they are not those of the network.
    """
    if examples is None:
        return None
    arrays = tuple(map(as_numpy, examples))
    if len(arrays) != len(inputs):
        names = ", ".join(tensor.name for tensor in inputs)
        raise InvalidValueError(f"{len(arrays)} example inputs; the network takes {names}")
    for tensor, array in zip(inputs, arrays, strict=True):
        if array.shape != tensor.shape or str(array.dtype) != tensor.dtype:
            raise InvalidValueError(
                f"example input {tensor.name!r} is {array.dtype}{list(array.shape)}; the network "
                f"takes {tensor.dtype}{list(tensor.shape)}"
            )
    return arrays


def random_examples(inputs: Sequence[NetworkTensor]) -> tuple[Array, ...]:
    """Inputs of one seed: normally distributed numbers, and whole ones that are valid indices."""
    rng = np.random.default_rng(0)
    found = []
    for tensor in inputs:
        kind = numpy_type(tensor.dtype)
        if "float" in tensor.dtype:
            found.append(rng.standard_normal(tensor.shape).astype(kind))
        else:
            # 0 and 1 index every table that is one.
            found.append(rng.integers(0, 2, tensor.shape).astype(kind))
    return tuple(found)


class NetworkTensor(NamedTuple):
    """An input or an output of a network; ``dtype`` is a name of numpy or ``ml_dtypes``."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """Its size."""
        from autotune.ir.element_types import element_type  # a loaded network has numpy alone

        return prod(self.shape) * element_type(self.dtype).bytes

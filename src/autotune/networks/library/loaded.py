"""A network in a shared library, called from Python: numpy is needed, and no compiler."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import time
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from autotune.backends import aligned_empty
from autotune.errors import InvalidValueError
from autotune.runtime.arrays import NetworkTensor, aligned_inputs, handed_back

__all__ = ["LoadedNetwork", "load_network"]

_SCHEMA, _VERSION = "autotune.network", 1
_MAGIC = b"\x7fELF"
_SECTIONS_AT, _SECTION_SIZES_AT, _HEAD_BYTES = 0x28, 0x3A, 64


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("rank", c_int32),
        ("shape", POINTER(c_int64)),
        ("bytes", c_size_t),
    )


class LoadedNetwork:
    """A network that :func:`load_network` has opened.

    It has memory and threads of its own; calls from several threads wait for each other. A forked
    process can call it, too.

    Args:
        library: The library.
        path: Its path.
        about: What it says of itself.
    """

    def __init__(self, library: ctypes.CDLL, path: Path, about: dict[str, Any]) -> None:
        self._library = library
        self.path = path
        self.name = str(about["name"])
        self.target = str(about["target"])
        self.inputs = _tensors(library.autotune_network_inputs)
        self.outputs = _tensors(library.autotune_network_outputs)
        self._states = _tensors(library.autotune_network_states)
        library.autotune_network_state.restype = c_void_p
        library.autotune_network_reset.restype = None
        library.autotune_network_error.restype = c_char_p
        library.autotune_network_threads.restype = c_int64
        library.autotune_network_set_threads.argtypes = (c_int64,)
        library.autotune_network_run.argtypes = (c_void_p, c_void_p)
        library.autotune_network_run.restype = c_int

    @property
    def threads(self) -> int:
        """Number of threads that a call uses, the calling one included.

        As many as it was tuned with, but no more than there are processors for, unless
        ``AUTOTUNE_NUM_THREADS`` says something else before the first call.
        """
        return int(self._library.autotune_network_threads())

    @threads.setter
    def threads(self, threads: int) -> None:
        self._check(self._library.autotune_network_set_threads(threads))

    @property
    def state(self) -> dict[str, Any]:
        """Copies of what it holds and writes in calls, by name; {} where it has none.

        Raises:
            InvalidValueError: its weights are not beside it, or the processor lacks instructions.
        """
        return {it.name: self._held(number, it) for number, it in enumerate(self._states)}

    def _held(self, number: int, tensor: NetworkTensor) -> Any:
        address = self._library.autotune_network_state(number)
        if address is None:
            raise InvalidValueError(f"{self.path.name}: {self._said()}")
        kind = _stored(tensor.dtype)
        array = np.empty(tensor.shape, kind)
        ctypes.memmove(array.ctypes.data, address, array.nbytes)
        return handed_back(array, tensor.dtype, None)

    def reset(self) -> None:
        """Set :attr:`state` to what it was before the first call."""
        self._library.autotune_network_reset()

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once.

        Args:
            inputs: Numpy arrays, or anything with DLPack, of exactly the network's shapes and
                types. They are not changed.

        Returns:
            The outputs, of the kind of the first input (numpy arrays where there is none).

        Raises:
            InvalidValueError: an input is missing, or of another shape or type, or holds what it
                must not; the processor lacks instructions that the network needs; or its weights
                are not beside it.
        """
        call, found = self._placed(inputs)
        call()
        like = inputs[0] if inputs else None
        return tuple(
            handed_back(array, tensor.dtype, like)
            for array, tensor in zip(found, self.outputs, strict=True)
        )

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Seconds of each of ``repeats`` calls, after one that is not counted.

        Each of them is a call like others, and writes the state.
        """
        call, _ = self._placed(inputs)
        call()
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        return tuple(times)

    def as_torch_operator(self, name: str) -> Callable[..., Any]:
        """Register it with torch as a custom operator, which ``torch.compile`` leaves as it is.

        Args:
            name: With a namespace: ``"mine::net"`` is called as ``torch.ops.mine.net(...)``.

        Returns:
            The operator: from tensors on the CPU to a tensor, or several as a tuple.

        Raises:
            InvalidValueError: the name has no namespace, or the network has a state.
        """
        if self.state:
            raise InvalidValueError(
                f"{self.path.name} keeps {', '.join(map(repr, self.state))} between calls, and "
                "custom operators of torch have no state: call the network itself"
            )
        if name.count("::") != 1 or not all(map(str.isidentifier, name.split("::"))):
            raise InvalidValueError(f"{name!r} is no name of an operator, such as 'mine::net'")
        return _registered(self, name)

    def _placed(self, inputs: Sequence[Any]) -> tuple[Callable[[], None], list[Any]]:
        """A call on inputs, and the outputs that it writes."""
        given = aligned_inputs(self.inputs, inputs)
        found = [aligned_empty(it.shape, _stored(it.dtype)) for it in self.outputs]
        tables = [
            (c_void_p * max(1, len(arrays)))(*(it.ctypes.data for it in arrays))
            for arrays in (given, found)
        ]

        def call(_kept: object = (given, found)) -> None:
            self._check(self._library.autotune_network_run(*tables))

        return call, found

    def _check(self, status: int) -> None:
        if status:
            raise InvalidValueError(f"{self.path.name}: {self._said()}")

    def _said(self) -> str:
        said: bytes = self._library.autotune_network_error()
        return said.decode(errors="replace")


def load_network(path: Path | str) -> LoadedNetwork:
    """Open a network that was saved as a shared library (``tune-model ... -o net.so``).

    Its code runs in this process: open files that you trust. No compiler is needed.

    Args:
        path: The file; what was written beside it for large networks lies beside it still.

    Raises:
        InvalidValueError: it cannot be read, is truncated, or is no such library.
    """
    path = Path(os.path.abspath(path))
    _check_is_whole(path)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise InvalidValueError(f"{str(path)!r} cannot be loaded: {error}") from error
    try:
        library.autotune_network_about.restype = c_char_p
        about = json.loads(library.autotune_network_about())
    except (AttributeError, ValueError) as error:
        raise InvalidValueError(
            f"{str(path)!r} is a library, and no network that was saved by autotune"
        ) from error
    if about.get("schema") != _SCHEMA or about.get("version") != _VERSION:
        raise InvalidValueError(
            f"{str(path)!r} is {about.get('schema')!r} of version {about.get('version')!r}, and "
            f"not {_SCHEMA!r} of version {_VERSION}: save it again"
        )
    return LoadedNetwork(library, path, about)


def _check_is_whole(path: Path) -> None:
    """Refuse what the system would load, and end the process by a signal."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
            size = stream.seek(0, os.SEEK_END)
    except OSError as error:
        raise InvalidValueError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    if not head.startswith(_MAGIC) or len(head) < _HEAD_BYTES:
        raise InvalidValueError(f"{str(path)!r} is no shared library")
    # The table of sections is what a linker writes last.
    (begin,) = struct.unpack_from("<Q", head, _SECTIONS_AT)
    each, count = struct.unpack_from("<HH", head, _SECTION_SIZES_AT)
    if size < begin + each * count:
        raise InvalidValueError(
            f"{str(path)!r} is truncated: it has {size} bytes of {begin + each * count}"
        )


def _tensors(function: Any) -> tuple[NetworkTensor, ...]:
    found = POINTER(_Tensor)()
    function.restype, function.argtypes = c_int32, (POINTER(POINTER(_Tensor)),)
    count = function(byref(found))
    return tuple(
        NetworkTensor(
            found[at].name.decode(),
            tuple(found[at].shape[: found[at].rank]),
            found[at].dtype.decode(),
        )
        for at in range(count)
    )


def _stored(dtype: str) -> np.dtype[Any]:
    """The type of an array that holds bits of a type which numpy may not have."""
    return np.dtype(np.uint16 if dtype == "bfloat16" else dtype)


def _registered(network: LoadedNetwork, name: str) -> Callable[..., Any]:
    """A custom operator of torch, which knows nothing of a state where it moves calls."""
    torch: Any = import_module("torch")
    given = ", ".join(f"Tensor input{at}" for at in range(len(network.inputs)))
    several = len(network.outputs) > 1
    returned = ", ".join(["Tensor"] * len(network.outputs))
    schema = f"({given}) -> {f'({returned})' if several else returned}"

    def handed(found: tuple[Any, ...]) -> Any:
        return found if several else found[0]

    def run(*tensors: Any) -> Any:
        found = network(*tensors)
        # A network without inputs returns arrays.
        return handed(tuple(map(torch.as_tensor, found)))

    def shaped(*tensors: Any) -> Any:
        kinds = [getattr(torch, it.dtype) for it in network.outputs]
        return handed(
            tuple(
                torch.empty(it.shape, dtype=kind, device="cpu")
                for it, kind in zip(network.outputs, kinds, strict=True)
            )
        )

    operator: Callable[..., Any] = torch.library.custom_op(
        name, run, mutates_args=(), device_types="cpu", schema=schema
    )
    operator.register_fake(shaped)  # type: ignore[attr-defined]
    return operator

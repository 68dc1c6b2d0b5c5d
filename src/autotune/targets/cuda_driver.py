"""CUDA's driver API through ctypes: typed, thin, and without a toolkit, torch or cupy.

Signatures are those of ``cuda.h`` of CUDA 12, with the versioned symbols that its macros name.
Handles (``CUcontext``, ``CUmodule``, ...) are integers here, device pointers are 64 bits wide.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64
from ctypes import c_ulonglong as c_flags
from ctypes import c_void_p as handle
from typing import Any

from numpy.typing import NDArray

from autotune.errors import UnsupportedTarget

__all__ = [
    "DRIVER_VARIABLE",
    "LEAST_DRIVER",
    "CudaDriver",
    "CudaError",
    "load_driver",
    "version_text",
]

DRIVER_VARIABLE = "AUTOTUNE_LIBCUDA"
"""Environment variable with the path of the driver's library, where the loader has none."""

LEAST_DRIVER = 12000
"""Oldest CUDA version of a driver, as ``cuDriverGetVersion`` counts: 1000 * major + 10 * minor."""

_LIBRARY = "libcuda.so.1"
_SUCCESS = 0
OUT_OF_MEMORY = 2
# These need no new context; after every other error of a running kernel nothing works any more.
_HARMLESS = frozenset({1, 2, 100, 101, 200, 209, 218, 222, 300, 301, 400, 500, 600, 701, 801})
_NO_DEVICE, _UNAVAILABLE = 100, 46

_U64, _I32, _U32 = c_uint64, c_int, c_uint
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_U32,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(handle), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (handle,),
    "cuCtxPushCurrent_v2": (handle,),
    "cuCtxPopCurrent_v2": (POINTER(handle),),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(_U64), c_size_t),
    "cuMemFree_v2": (_U64,),
    "cuMemcpyHtoD_v2": (_U64, handle, c_size_t),
    "cuMemcpyDtoH_v2": (handle, _U64, c_size_t),
    "cuMemcpyDtoD_v2": (_U64, _U64, c_size_t),
    "cuMemsetD8_v2": (_U64, c_ubyte, c_size_t),
    "cuModuleLoadDataEx": (POINTER(handle), handle, _U32, handle, handle),
    "cuModuleUnload": (handle,),
    "cuModuleGetFunction": (POINTER(handle), handle, c_char_p),
    "cuFuncSetAttribute": (handle, c_int, c_int),
    "cuLaunchKernel": (handle, *(_U32,) * 6, _U32, handle, handle, handle),
    "cuStreamCreate": (POINTER(handle), _U32),
    "cuStreamSynchronize": (handle,),
    "cuStreamBeginCapture_v2": (handle, c_int),
    "cuStreamEndCapture": (handle, POINTER(handle)),
    # The form without diagnostics that has kept its signature since CUDA 11.4.
    "cuGraphInstantiateWithFlags": (POINTER(handle), handle, c_flags),
    "cuGraphLaunch": (handle, handle),
    "cuGraphExecDestroy": (handle,),
    "cuGraphDestroy": (handle,),
    "cuEventCreate": (POINTER(handle), _U32),
    "cuEventRecord": (handle, handle),
    "cuEventSynchronize": (handle,),
    "cuEventElapsedTime": (POINTER(c_float), handle, handle),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}
_DYNAMIC_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_CAPTURE_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_MOST_STATIC_BYTES = 48 * 1024


class CudaError(Exception):
    """A call of the driver failed.

    Attributes:
        code: Its ``CUresult``.
    """

    def __init__(self, call: str, code: int, text: str) -> None:
        self.code = code
        super().__init__(f"{call}: CUDA error {code} ({text})")

    @property
    def loses_context(self) -> bool:
        """Whether nothing works in this process any more, as after an illegal address."""
        return self.code not in _HARMLESS


class CudaDriver:
    """The functions of a loaded driver; each raises :class:`CudaError` when it fails.

    Args:
        library: The driver's library.

    Raises:
        AttributeError: the library lacks a function.
    """

    def __init__(self, library: Any) -> None:
        self._functions = {}
        for name, types in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, c_int
            self._functions[name] = function

    def _call(self, name: str, *arguments: Any) -> None:
        code = self._functions[name](*arguments)
        if code != _SUCCESS:
            raise CudaError(name, code, self._explain(code))

    def _explain(self, code: int) -> str:
        found = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            if self._functions[name](code, byref(text)) == _SUCCESS and text.value:
                found.append(text.value.decode(errors="replace"))
        return ": ".join(found) or "unknown"

    def _made(self, name: str, *arguments: Any) -> int:
        made = handle()
        self._call(name, byref(made), *arguments)
        return int(made.value or 0)

    def _counted(self, name: str, *arguments: Any) -> int:
        count = c_int()
        self._call(name, byref(count), *arguments)
        return int(count.value)

    def initialize(self) -> None:
        """Start the driver in this process."""
        self._call("cuInit", 0)

    def version(self) -> int:
        """Latest CUDA version that the driver supports, such as 12040."""
        return self._counted("cuDriverGetVersion")

    def device_count(self) -> int:
        """How many devices this process may use; ``CUDA_VISIBLE_DEVICES`` limits them."""
        return self._counted("cuDeviceGetCount")

    def device(self, index: int) -> int:
        """The device at an index."""
        return self._counted("cuDeviceGet", index)

    def name(self, device: int) -> str:
        """Its name, such as ``"NVIDIA H100 80GB HBM3"``."""
        text = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", text, len(text), device)
        return text.value.decode(errors="replace")

    def total_memory(self, device: int) -> int:
        """Bytes of its memory."""
        size = c_size_t()
        self._call("cuDeviceTotalMem_v2", byref(size), device)
        return size.value

    def attribute(self, device: int, attribute: int) -> int:
        """A ``CUdevice_attribute`` by its number."""
        return self._counted("cuDeviceGetAttribute", attribute, device)

    def primary_context(self, device: int) -> int:
        """The context that everything in this process shares, to be given back when not needed."""
        return self._made("cuDevicePrimaryCtxRetain", device)

    def retain_context(self, device: int) -> None:
        """Make the primary context of a device current in this thread."""
        self._call("cuCtxSetCurrent", self.primary_context(device))

    @contextmanager
    def current(self, context: int) -> Iterator[None]:
        """Inside, a context is current in this thread; afterwards what was so before."""
        self._call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self._made("cuCtxPopCurrent_v2")

    def release_context(self, device: int) -> None:
        """Give it back."""
        self._call("cuCtxSetCurrent", None)
        self.release_primary_context(device)

    def release_primary_context(self, device: int) -> None:
        """Give back what :meth:`primary_context` gave, which is current in no thread."""
        self._call("cuDevicePrimaryCtxRelease_v2", device)

    def memory(self) -> tuple[int, int]:
        """Bytes of the current device that are free, and all of them."""
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> int:
        """Memory of the device; its address is a multiple of 256."""
        pointer = _U64()
        self._call("cuMemAlloc_v2", byref(pointer), size)
        return pointer.value

    def free(self, pointer: int) -> None:
        """Free what :meth:`allocate` gave."""
        self._call("cuMemFree_v2", pointer)

    def upload(self, pointer: int, array: NDArray[Any]) -> None:
        """Copy a contiguous array to the device."""
        self._call("cuMemcpyHtoD_v2", pointer, array.ctypes.data, array.nbytes)

    def download(self, array: NDArray[Any], pointer: int) -> None:
        """Copy from the device into a contiguous array, after what was launched."""
        self._call("cuMemcpyDtoH_v2", array.ctypes.data, pointer, array.nbytes)

    def copy(self, to: int, source: int, size: int) -> None:
        """Copy bytes within the device."""
        self._call("cuMemcpyDtoD_v2", to, source, size)

    def fill(self, pointer: int, byte: int, size: int) -> None:
        """Set bytes of the device."""
        self._call("cuMemsetD8_v2", pointer, byte, size)

    def load_module(self, image: bytes) -> int:
        """Load a cubin."""
        return self._made("cuModuleLoadDataEx", image, 0, None, None)

    def unload_module(self, module: int) -> None:
        """Unload it."""
        self._call("cuModuleUnload", module)

    def function(self, module: int, name: str) -> int:
        """A kernel of a module."""
        return self._made("cuModuleGetFunction", module, name.encode())

    def allow_shared_memory(self, function: int, size: int) -> None:
        """Let a kernel be launched with more dynamic shared memory than 48 KiB."""
        if size > _MOST_STATIC_BYTES:
            self._call("cuFuncSetAttribute", function, _DYNAMIC_SHARED_BYTES, size)

    def launch(
        self,
        function: int,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        stream: int,
        parameters: Sequence[Any],
    ) -> None:
        """Launch a kernel.

        Args:
            function: The kernel.
            grid: Blocks in x, y and z.
            block: Threads of a block in x, y and z.
            shared_bytes: Dynamic shared memory.
            stream: Where.
            parameters: ctypes values of exactly the sizes of the kernel's parameters.
        """
        pointers = (handle * max(1, len(parameters)))(
            *(ctypes.addressof(value) for value in parameters)
        )
        self._call("cuLaunchKernel", function, *grid, *block, shared_bytes, stream, pointers, None)

    def create_stream(self) -> int:
        """A stream that waits for copies and fills, which use the default one."""
        return self._made("cuStreamCreate", 0)

    def synchronize(self, stream: int) -> None:
        """Wait until what was launched has ended; raises what kernels did wrong."""
        self._call("cuStreamSynchronize", stream)

    def begin_capture(self, stream: int) -> None:
        """Record launches instead of making them."""
        self._call("cuStreamBeginCapture_v2", stream, _CAPTURE_THREAD_LOCAL)

    def end_capture(self, stream: int) -> int:
        """An executable graph of what was recorded."""
        graph = handle()
        self._call("cuStreamEndCapture", stream, byref(graph))
        try:
            return self._made("cuGraphInstantiateWithFlags", graph, 0)
        finally:
            self._call("cuGraphDestroy", graph)

    def launch_graph(self, graph: int, stream: int) -> None:
        """Launch an executable graph."""
        self._call("cuGraphLaunch", graph, stream)

    def destroy_graph(self, graph: int) -> None:
        """Free an executable graph."""
        self._call("cuGraphExecDestroy", graph)

    def create_event(self) -> int:
        """An event that takes the time."""
        return self._made("cuEventCreate", 0)

    def record(self, event: int, stream: int) -> None:
        """Take the time when a stream has come here."""
        self._call("cuEventRecord", event, stream)

    def seconds_between(self, begin: int, end: int) -> float:
        """Seconds between two events, when the second has happened."""
        self._call("cuEventSynchronize", end)
        milliseconds = c_float()
        self._call("cuEventElapsedTime", byref(milliseconds), begin, end)
        return milliseconds.value * 1e-3


def version_text(version: int) -> str:
    """A version as people write it: ``12.4``."""
    return f"{version // 1000}.{version % 1000 // 10}"


def load_driver() -> CudaDriver:
    """The driver of this machine, started.

    Raises:
        UnsupportedTarget: there is none, it is too old, or it has no device; says which.
    """
    path = os.environ.get(DRIVER_VARIABLE) or _LIBRARY
    try:
        driver = CudaDriver(ctypes.CDLL(path))
    except OSError as error:
        raise UnsupportedTarget(
            f"there is no CUDA device here: the driver's library cannot be loaded ({error}); "
            f"where it is not on the loader's path, {DRIVER_VARIABLE} names it"
        ) from error
    except AttributeError as error:
        raise UnsupportedTarget(
            f"the CUDA driver {path!r} is too old: {error}; a driver for CUDA "
            f"{version_text(LEAST_DRIVER)} or later is needed"
        ) from error
    try:
        version = driver.version()
        if version < LEAST_DRIVER:
            raise UnsupportedTarget(
                f"the CUDA driver is too old: it is for CUDA {version_text(version)}, and "
                f"{version_text(LEAST_DRIVER)} or later is needed"
            )
        driver.initialize()
        if driver.device_count() == 0:
            raise UnsupportedTarget(
                "there is no CUDA device here: the driver finds none that this process may use"
            )
    except CudaError as error:
        what = (
            "there is no CUDA device here" if error.code == _NO_DEVICE else "CUDA does not start"
        )
        raise UnsupportedTarget(f"{what}: {error}") from error
    return driver

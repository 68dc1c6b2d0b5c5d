"""CUDA's driver API through ctypes: typed, thin, and without a toolkit, torch or cupy.

Signatures are those of ``cuda.h`` of CUDA 12, with the versioned symbols that its macros name.
Handles (``CUcontext``, ``CUmodule``, ...) are integers here, device pointers are 64 bits wide.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
    "driver_version",
    "load_driver",
    "version_text",
]

DRIVER_VARIABLE = "AUTOTUNE_LIBCUDA"
"""Environment variable with the path of the driver's library, where the loader has none."""

LEAST_DRIVER = 12000
"""Oldest CUDA version of a driver, as ``cuDriverGetVersion`` counts: 1000 * major + 10 * minor."""

_LIBRARY = "libcuda.so.1"
_SUCCESS = 0
# These need no new context; after every other error of a running kernel nothing works any more.
_HARMLESS = frozenset({1, 2, 100, 101, 200, 209, 218, 222, 300, 301, 400, 500, 600, 701, 801})
# What cannot be done on a stream that is being recorded: the recording is lost, and nothing else.
_OF_RECORDING = frozenset(range(900, 909))
_NO_DEVICE = 100

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
    "cuMemcpyHtoDAsync_v2": (_U64, handle, c_size_t, handle),
    "cuMemcpyDtoDAsync_v2": (_U64, _U64, c_size_t, handle),
    "cuMemsetD8_v2": (_U64, c_ubyte, c_size_t),
    "cuModuleLoadDataEx": (POINTER(handle), handle, _U32, handle, handle),
    "cuModuleUnload": (handle,),
    "cuModuleGetFunction": (POINTER(handle), handle, c_char_p),
    "cuFuncSetAttribute": (handle, c_int, c_int),
    "cuLaunchKernel": (handle, *(_U32,) * 6, _U32, handle, handle, handle),
    "cuTensorMapEncodeTiled": (
        *(handle, c_int, _U32, handle, POINTER(_U64), POINTER(_U64), POINTER(_U32)),
        *(POINTER(_U32), c_int, c_int, c_int, c_int),
    ),
    "cuStreamCreate": (POINTER(handle), _U32),
    "cuStreamDestroy_v2": (handle,),
    "cuStreamSynchronize": (handle,),
    "cuStreamWaitEvent": (handle, handle, _U32),
    "cuStreamIsCapturing": (handle, POINTER(c_int)),
    "cuStreamBeginCapture_v2": (handle, c_int),
    "cuStreamEndCapture": (handle, POINTER(handle)),
    "cuThreadExchangeStreamCaptureMode": (POINTER(c_int),),
    # The form without diagnostics that has kept its signature since CUDA 11.4.
    "cuGraphInstantiateWithFlags": (POINTER(handle), handle, c_flags),
    "cuGraphUpload": (handle, handle),
    "cuGraphLaunch": (handle, handle),
    "cuGraphExecDestroy": (handle,),
    "cuGraphDestroy": (handle,),
    "cuEventCreate": (POINTER(handle), _U32),
    "cuEventRecord": (handle, handle),
    "cuEventSynchronize": (handle,),
    "cuEventDestroy_v2": (handle,),
    "cuEventElapsedTime": (POINTER(c_float), handle, handle),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}
_DYNAMIC_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_UNTIMED = 2  # CU_EVENT_DISABLE_TIMING
# CU_STREAM_CAPTURE_MODE_RELAXED: in the others, memory that is allocated or freed meanwhile ends
# it; of a thread, that what it does on other streams ends no recording.
_CAPTURE_RELAXED = 2
# Descriptors of tensors (CUtensorMap): their size and alignment, and the numbers of cuda.h for
# types of elements and for patterns of rows, by the bytes of these.
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
_MAP_TYPES = {"int8": 0, "uint8": 0, "float16": 6, "bfloat16": 9}
_MAP_SWIZZLES = {32: 1, 64: 2, 128: 3}
_NO_INTERLEAVE, _L2_OF_128_BYTES, _ZEROS_BEYOND = 0, 2, 0


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
        """True if nothing works in this process any more, as after an illegal address."""
        return self.code not in _HARMLESS | _OF_RECORDING


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

    def _counted_on(self, name: str, of: int) -> int:
        count = c_int()
        self._call(name, of, byref(count))
        return int(count.value)

    def initialize(self) -> None:
        """Start the driver in this process."""
        self._call("cuInit", 0)

    def version(self) -> int:
        """Latest CUDA version that the driver supports, such as 12040."""
        return self._counted("cuDriverGetVersion")

    def device_count(self) -> int:
        """Number of devices this process may use; ``CUDA_VISIBLE_DEVICES`` limits them."""
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

    def retain_context(self, device: int) -> int:
        """The primary context of a device, which is made current in this thread."""
        context = self.primary_context(device)
        self._call("cuCtxSetCurrent", context)
        return context

    @contextmanager
    def current(self, context: int) -> Iterator[None]:
        """Inside, a context is current in this thread; afterwards what was so before.

        What is done inside ends no recording that others have begun, as ``torch.cuda.graph`` does:
        otherwise allocating or freeing memory would, in any thread.
        """
        self._call("cuCtxPushCurrent_v2", context)
        mode = c_int(_CAPTURE_RELAXED)
        try:
            self._exchange_mode(mode)
            yield
        except BaseException:
            # After a lost context both may fail, too: that hides nothing.
            with suppress(CudaError):
                self._exchange_mode(mode)
            with suppress(CudaError):
                self._made("cuCtxPopCurrent_v2")
            raise
        self._exchange_mode(mode)
        self._made("cuCtxPopCurrent_v2")

    def _exchange_mode(self, mode: c_int) -> None:
        """Change what recordings forbid this thread to a mode, which becomes what it was."""
        self._call("cuThreadExchangeStreamCaptureMode", byref(mode))

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

    def begin_copy(self, to: int, source: int, size: int, stream: int) -> None:
        """Copy bytes within the device when a stream has come here."""
        self._call("cuMemcpyDtoDAsync_v2", to, source, size, stream)

    def begin_upload(self, pointer: int, array: NDArray[Any], stream: int) -> None:
        """Copy a contiguous array to the device when a stream has come here.

        It may be changed again at once, unless it lies in pinned memory: then when the stream has
        been waited for.
        """
        self._call("cuMemcpyHtoDAsync_v2", pointer, array.ctypes.data, array.nbytes, stream)

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
        """Let a kernel be launched with so much dynamic shared memory.

        Without asking it may have what its static shared memory leaves of 48 KiB, which is less
        than 48 KiB where there is any.
        """
        if size > 0:
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

    def tensor_map(
        self, pointer: int, dtype: str, shape: Sequence[int], box: Sequence[int], size: int
    ) -> ctypes.Array[c_ubyte]:
        """A descriptor of a tensor for the copy engine, as a kernel takes it.

        Args:
            pointer: Where the tensor begins: a multiple of 16.
            dtype: Type of its elements, which move as they are: int8, uint8, float16, bfloat16.
            shape: Its extents, the innermost last, whose neighbours lie together.
            box: Extents of what one copy moves; the last is 32, 64 or 128 bytes, which are
                swizzled in shared memory. Beyond the tensor there are zeros.
            size: Bytes of an element.
        """
        rank, row = len(shape), box[-1] * size
        strides, step = [], size
        for extent in reversed(shape[1:]):
            step *= extent
            strides.append(step)
        raw = (c_ubyte * (_MAP_BYTES + _MAP_ALIGNMENT))()
        made = (c_ubyte * _MAP_BYTES).from_buffer(raw, -ctypes.addressof(raw) % _MAP_ALIGNMENT)
        self._call(
            *("cuTensorMapEncodeTiled", ctypes.addressof(made), _MAP_TYPES[dtype], rank, pointer),
            *((_U64 * rank)(*reversed(shape)), (_U64 * max(1, rank - 1))(*strides)),
            *((_U32 * rank)(*reversed(box)), (_U32 * rank)(*[1] * rank)),
            *(_NO_INTERLEAVE, _MAP_SWIZZLES[row], _L2_OF_128_BYTES, _ZEROS_BEYOND),
        )
        return made

    def create_stream(self, *, waits: bool = True) -> int:
        """A stream.

        Args:
            waits: Whether it waits for copies and fills, which use the default stream, and these
                for it. One that does cannot be recorded while anything uses the default stream.
        """
        return self._made("cuStreamCreate", 0 if waits else _NON_BLOCKING)

    def destroy_stream(self, stream: int) -> None:
        """Free a stream; what is on its way there goes on."""
        self._call("cuStreamDestroy_v2", stream)

    def synchronize(self, stream: int) -> None:
        """Wait until what was launched has ended; raises what kernels did wrong."""
        self._call("cuStreamSynchronize", stream)

    def wait(self, stream: int, event: int) -> None:
        """Have a stream go on once an event has happened, as it was recorded last."""
        self._call("cuStreamWaitEvent", stream, event, 0)

    def is_capturing(self, stream: int) -> bool:
        """Return whether launches on a stream are being recorded into a graph, by any library."""
        return self._counted_on("cuStreamIsCapturing", stream) != 0

    def begin_capture(self, stream: int) -> None:
        """Record launches instead of making them."""
        self._call("cuStreamBeginCapture_v2", stream, _CAPTURE_RELAXED)

    def end_capture(self, stream: int) -> int:
        """An executable graph of what was recorded."""
        graph = handle()
        self._call("cuStreamEndCapture", stream, byref(graph))
        try:
            return self._made("cuGraphInstantiateWithFlags", graph, 0)
        finally:
            self._call("cuGraphDestroy", graph)

    def upload_graph(self, graph: int, stream: int) -> None:
        """Have an executable graph on the device, which its first launch otherwise does."""
        self._call("cuGraphUpload", graph, stream)

    def launch_graph(self, graph: int, stream: int) -> None:
        """Launch an executable graph."""
        self._call("cuGraphLaunch", graph, stream)

    def destroy_graph(self, graph: int) -> None:
        """Free an executable graph."""
        self._call("cuGraphExecDestroy", graph)

    def create_event(self, *, timed: bool = True) -> int:
        """An event, which takes the time or is only waited for."""
        return self._made("cuEventCreate", 0 if timed else _UNTIMED)

    def destroy_event(self, event: int) -> None:
        """Free an event."""
        self._call("cuEventDestroy_v2", event)

    def await_event(self, event: int) -> None:
        """Wait until an event has happened; raises what kernels before it did wrong."""
        self._call("cuEventSynchronize", event)

    def record(self, event: int, stream: int) -> None:
        """Take the time when a stream has come here."""
        self._call("cuEventRecord", event, stream)

    def seconds_between(self, begin: int, end: int) -> float:
        """Seconds between two events, when the second has happened."""
        self.await_event(end)
        milliseconds = c_float()
        self._call("cuEventElapsedTime", byref(milliseconds), begin, end)
        return milliseconds.value * 1e-3


def version_text(version: int) -> str:
    """A version as people write it: ``12.4``."""
    return f"{version // 1000}.{version % 1000 // 10}"


def driver_version() -> int | None:
    """CUDA version of this machine's driver, as it counts, or None where there is none.

    There need not be a device, and nothing of one is taken.
    """
    try:
        library = ctypes.CDLL(os.environ.get(DRIVER_VARIABLE) or _LIBRARY)
        function = library.cuDriverGetVersion
    except (OSError, AttributeError):
        return None
    version = c_int()
    return version.value if function(byref(version)) == _SUCCESS else None


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

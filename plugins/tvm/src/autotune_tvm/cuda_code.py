"""From a scheduled module to CUDA source, to machine code, and to how it is launched."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import frozen

from autotune.backends import BuildFailed, CudaProgram, DeviceBuffer, KernelLaunch
from autotune.ir.element_types import element_type
from autotune.targets import Target
from autotune_tvm import runtime
from autotune_tvm.compiler import brief, cuda_target
from autotune_tvm.resident_blocks import with_resident_blocks

__all__ = [
    "LoweredKernels",
    "cuda_source",
    "kernel_pipeline",
    "launches_of",
    "lower_kernels",
]

_CALLBACK = "tvm_callback_cuda_compile"
_KERNEL_CONVENTION = 2  # CallingConv::kDeviceKernelLaunch
_AXES = ("x", "y", "z")
_BITS = {"inf": "0x7f800000", "nan": "0x7fffffff"}
_NAMES = {"max": "larger", "min": "smaller"}
_DYNAMIC_SHARED = "tirx.use_dyn_shared_memory"
# Of what all threads of the process see while passes run and source is generated.
_RUNNING = threading.Lock()


@frozen(eq=False)
class LoweredKernels:
    """A module after TVM's passes, taken apart.

    Attributes:
        kernels: The module of the device's functions.
        launches: How they are launched, in order.
        intermediates: Buffers that are none of the program's arguments.
    """

    kernels: Any
    launches: tuple[KernelLaunch, ...]
    intermediates: tuple[DeviceBuffer, ...]

    def program(self, cubin: bytes, *, fast_math: bool) -> CudaProgram:
        """Machine code of the kernels with their launches."""
        return CudaProgram(cubin, self.launches, self.intermediates, fast_math)


def lower_kernels(module: Any, target: Target) -> LoweredKernels:
    """Run TVM's passes, up to where code is generated.

    Raises:
        BuildFailed: a pass rejected the module, or it does something that is no launch.
    """
    tvm = runtime.load()
    from tvm.tirx.build import split_host_device_mods

    from autotune_tvm.passes.booleans import narrow_boolean_vectors
    from autotune_tvm.passes.bulk_copies import with_tensor_maps

    try:
        made = tvm.target.Target(cuda_target(target))
        bound = tvm.tirx.transform.BindTarget(made.with_host(tvm.target.Target("llvm")))(module)
        bound = narrow_boolean_vectors(bound)
        _, _, finalize_device = tvm.tirx.get_default_tir_pipeline(made)
        host, devices = split_host_device_mods(kernel_pipeline(made)(bound))
        found = [finalize_device()(part) for part in devices.values()]
    except Exception as error:  # TVM raises whatever its passes raise
        raise BuildFailed(brief(error)) from error
    if len(found) != 1:
        raise BuildFailed(f"the program has {len(found)} CUDA modules where one is expected")
    kernels = found[0]
    names = {
        variable.name_hint
        for variable, function in kernels.functions.items()
        if int(function.attrs.get("calling_conv", 0)) == _KERNEL_CONVENTION
    }
    launches, intermediates = launches_of(host, names)
    kernels, launches = with_tensor_maps(kernels, launches)
    kernels = with_resident_blocks(kernels, launches, target)
    return LoweredKernels(kernels, launches, intermediates)


def cuda_source(lowered: LoweredKernels, target: Target) -> str:
    """CUDA source of the kernels; runs no CUDA compiler.

    Raises:
        BuildFailed: TVM has no code for something.
    """
    tvm = runtime.load()
    try:
        with _not_compiled():
            generate = tvm.get_global_func("target.build.cuda")
            built = generate(lowered.kernels, tvm.target.Target(cuda_target(target)))
            return _spelled(str(built.inspect_source()))
    except Exception as error:  # TVM raises whatever its code generator raises
        raise BuildFailed(brief(error)) from error


def _spelled(source: str) -> str:
    """Source with CUDA's own names where TVM 0.27 writes others.

    Infinities and NaNs of bfloat16 are ``inff`` and ``nanf`` there, and what rounds halves to even
    numbers is called as if there were a function for them of the name that floats have one of.
    """
    source = re.sub(
        r"\b(inf|nan)f(?=/\*)", lambda found: f"__int_as_float({_BITS[found.group(1)]})", source
    )
    return _with_nan(source.replace("hnearbyint(", "hrint("))


_KERNEL = 'extern "C" __global__'

_EXTREMES = """\
#ifndef AUTOTUNE_EXTREMES
#define AUTOTUNE_EXTREMES
// The larger and the smaller of both; NaN where one is, which CUDA's own leave out.
template <typename T> static inline __device__ T larger(T a, T b) {
  return a > b || a != a ? a : b;
}
template <typename T> static inline __device__ T smaller(T a, T b) {
  return a < b || a != a ? a : b;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
static inline __device__ float larger(float a, float b) {
  float found;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
}
static inline __device__ float smaller(float a, float b) {
  float found;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
}
#endif
#endif

"""


def _with_nan(source: str) -> str:
    """Source whose kernels have NaN for the larger and the smaller of two if one is NaN."""
    before, kernel, after = source.partition(_KERNEL)
    changed = re.sub(r"\b(max|min)\(", lambda it: f"{_NAMES[it.group(1)]}(", kernel + after)
    return source if changed == kernel + after else before + _EXTREMES + changed


def launches_of(
    host: Any, kernels: set[str]
) -> tuple[tuple[KernelLaunch, ...], tuple[DeviceBuffer, ...]]:
    """Launches of the host's function ``main``, in order, and the memory that it allocates.

    Raises:
        BuildFailed: it does anything else with data: loops around launches, say.
    """
    launches: list[KernelLaunch] = []
    buffers: list[DeviceBuffer] = []
    for statement in _statements(host["main"].body):
        kind = type(statement).__name__
        if kind == "AllocBuffer":
            buffers.append(_buffer(statement.buffer))
        elif kind == "Evaluate" and _is_launch(statement.value):
            launches.append(_launch(statement.value))
        elif kind in ("BufferStore", "For", "While"):
            raise BuildFailed(f"a statement ({kind}) runs on the host: no loop around it is bound")
    if not launches:
        raise BuildFailed("the program launches no kernel")
    unknown = sorted({launch.kernel for launch in launches} - kernels)
    if unknown:
        raise BuildFailed(f"the program launches {unknown[0]!r}, which it does not have")
    return tuple(launches), tuple(buffers)


def _statements(node: Any) -> Iterator[Any]:
    """Statements of a host's function, in order; what it only does where it fails is left out."""
    kind = type(node).__name__
    if kind == "SeqStmt":
        for part in node.seq:
            yield from _statements(part)
        return
    if kind in ("AttrStmt", "LetStmt"):
        yield from _statements(node.body)
        return
    if kind in ("AssertStmt", "IfThenElse"):
        # Checks of arguments: of strides, say, which are the caller's here.
        return
    yield node


def _is_launch(call: Any) -> bool:
    return getattr(getattr(call, "op", None), "name", "") == "tirx.call_ffi_kernel"


def _launch(call: Any) -> KernelLaunch:
    """A call ``call_ffi_kernel(NAME, pointers..., extents...)``; what the extents are of is named
    by its attributes, in their order."""
    name = str(call.args[0].value)
    tags = [str(tag) for tag in call.attrs.launch_params]
    pointers = call.args[1 : len(call.args) - len(tags)]
    extents = {}
    for tag, extent in zip(tags, call.args[len(call.args) - len(tags) :], strict=True):
        value = getattr(extent, "value", None)
        if not isinstance(value, int):
            raise BuildFailed(f"kernel {name!r} is launched with {tag} of {extent}: not constant")
        extents[tag] = value
    grid = [extents.pop(f"blockIdx.{axis}", 1) for axis in _AXES]
    block = [extents.pop(f"threadIdx.{axis}", 1) for axis in _AXES]
    shared = extents.pop(_DYNAMIC_SHARED, 0)
    if extents:
        raise BuildFailed(f"kernel {name!r} is launched with {sorted(extents)[0]}: not supported")
    return KernelLaunch(
        name,
        (grid[0], grid[1], grid[2]),
        (block[0], block[1], block[2]),
        shared,
        tuple(_pointer(argument, name) for argument in pointers),
    )


def _pointer(argument: Any, kernel: str) -> str:
    """Name of the buffer that a kernel is given."""
    for found in (argument, *getattr(argument, "args", ())):
        name = getattr(found, "name", None)
        if isinstance(name, str) and not hasattr(found, "value"):
            return name
    raise BuildFailed(f"kernel {kernel!r} takes {argument}, which is no buffer")


def _buffer(buffer: Any) -> DeviceBuffer:
    extents = [int(extent.value) for extent in buffer.shape if hasattr(extent, "value")]
    if len(extents) != len(buffer.shape):
        raise BuildFailed(f"buffer {buffer.name} has no constant shape")
    # Of vectors, where every access is one.
    name, _, lanes = str(buffer.dtype).partition("x")
    kind = element_type(name)
    size = kind.bytes * int(lanes or 1) * math.prod(extents)
    return DeviceBuffer(str(buffer.name), size, kind.is_float)


@contextmanager
def _not_compiled() -> Iterator[None]:
    """Inside, TVM does not compile the source that it generates.

    It otherwise does so where there is a device, with options of its own, and takes ten times as
    long as for the source. What others have registered is put back. One thread is inside at a
    time.
    """
    import tvm_ffi

    tvm = runtime.load()
    with _RUNNING:
        before = tvm.get_global_func(_CALLBACK, allow_missing=True)
        tvm_ffi.register_global_func(_CALLBACK, lambda *_: b"\x7fELF", override=True)
        try:
            yield
        finally:
            if before is None:
                tvm_ffi.registry.remove_global_func(_CALLBACK)
            else:
                tvm_ffi.register_global_func(_CALLBACK, before, override=True)


def kernel_pipeline(target: Any) -> Callable[[Any], Any]:
    """TVM's default pipeline, which TVM has as one pass, with two more in its midst.

    Before the pass that puts barriers around stores to shared memory go
    :func:`~autotune_tvm.passes.async_copies.async_copies`, which has to see vectors, and
    :func:`~autotune_tvm.passes.sync_rows.sync_rows`, which adds to these barriers.

    Args:
        target: TVM's target object.
    """
    import tvm
    from tvm import s_tir

    from autotune_tvm.passes.async_copies import async_copies
    from autotune_tvm.passes.sync_rows import sync_rows

    pipeline, _, _ = tvm.tirx.get_default_tir_pipeline(target)
    synchronize = s_tir.transform.ThreadSync

    def prepared(module: Any, _: Any) -> Any:
        return sync_rows(async_copies(module))

    before = tvm.transform.module_pass(prepared, opt_level=0, name="CopiesAndRows")

    def synchronized(scope: str) -> Any:
        own = synchronize(scope)
        return tvm.transform.Sequential([before, own]) if scope == "shared" else own

    def run(module: Any) -> Any:
        # TVM makes the passes while the pipeline runs, by their names.
        with _RUNNING, runtime.replaced(s_tir.transform, "ThreadSync", synchronized):
            return pipeline(module)

    return run

"""Comparison of results on the device, by the bounds of :mod:`autotune.measure.validation`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_uint64

import numpy as np
from attrs import define, frozen

from autotune.ir.element_types import ElementType
from autotune.measure.devices.device import Block, Device
from autotune.measure.validation import Expected, mismatch

__all__ = ["CHECK_SOURCE", "DeviceChecker", "ExpectedOnDevice"]

_THREADS, _MOST_BLOCKS, _PER_THREAD = 128, 1024, 16

# Halves are decoded by hand, so that no header of CUDA's is needed.
CHECK_SOURCE = r"""
typedef unsigned long long u64;
struct Half { unsigned short bits; };
struct Brain { unsigned short bits; };
__device__ inline double number(float value) { return value; }
__device__ inline double number(double value) { return value; }
__device__ inline double number(Half value) {
  unsigned sign = value.bits >> 15, power = value.bits >> 10 & 31, part = value.bits & 1023;
  double size;
  if (power == 31) {
    unsigned bits = part ? 0x7fc00000u : 0x7f800000u;
    size = __uint_as_float(bits);
  } else if (power == 0) {
    size = part * (1.0 / 16777216.0);
  } else {
    size = (1024 + part) * (1.0 / 33554432.0) * (double)(1u << power);
  }
  return sign ? -size : size;
}
__device__ inline double number(Brain value) {
  return __uint_as_float((unsigned)value.bits << 16);
}
template <class Element>
__device__ inline void compare(const Element* got, const Element* want, const float* bound,
                               u64* wrong, u64 count, u64 threads, u64 self) {
  u64 found = 0;
  for (u64 at = self; at < count; at += threads) {
    double result = number(got[at]), reference = number(want[at]);
    double error = result < reference ? reference - result : result - reference;
    bool near = error <= bound[at];
    bool same = result == reference || (result != result && reference != reference);
    found += !(near || same);
  }
  wrong[self] = found;
}
#define COMPARE(name, Element)                                                            \
  extern "C" __global__ void name(const Element* got, const Element* want,                \
                                  const float* bound, u64* wrong, u64 count, u64 threads) { \
    compare(got, want, bound, wrong, count, threads, (u64)blockIdx.x * 128 + threadIdx.x); \
  }
COMPARE(check_float32, float)
COMPARE(check_float64, double)
COMPARE(check_float16, Half)
COMPARE(check_bfloat16, Brain)
extern "C" __global__ void check_bytes(const unsigned char* got, const unsigned char* want,
                                       const float*, u64* wrong, u64 count, u64 threads) {
  u64 found = 0;
  // Arrays begin at multiples of 256.
  for (u64 at = (u64)blockIdx.x * 128 + threadIdx.x; at < count / 8; at += threads) {
    found += ((const u64*)got)[at] != ((const u64*)want)[at];
  }
  u64 self = (u64)blockIdx.x * 128 + threadIdx.x;
  if (self < count % 8) found += got[count / 8 * 8 + self] != want[count / 8 * 8 + self];
  wrong[self] = found;
}
"""
_FLOATS = ("float32", "float64", "float16", "bfloat16")


@frozen(eq=False)
class ExpectedOnDevice:
    """A reference output on the device.

    Attributes:
        expected: The reference and its bounds on the host.
        reference: The reference.
        bound: Largest absolute error of each element, in float32; None where bits are compared.
    """

    expected: Expected
    reference: Block
    bound: Block | None


@define(eq=False)
class DeviceChecker:
    """Compares arrays on a device.

    Attributes:
        device: The device.
        function: Finds a kernel of the module of :data:`CHECK_SOURCE`.
    """

    device: Device
    function: Callable[[str], int]
    _counts: Block | None = None

    def expect(
        self, expected: Expected, allocate: Callable[[str, int], Block]
    ) -> ExpectedOnDevice:
        """Copy a reference to the device, into memory of a name and a size."""
        reference = allocate(f"reference {expected.name}", expected.reference.nbytes)
        self.device.upload(reference, expected.reference)
        if _kernel(expected.element) == "check_bytes":
            return ExpectedOnDevice(expected, reference, None)
        bound = np.ascontiguousarray(expected.bound, np.float32)
        block = allocate(f"bounds of {expected.name}", bound.nbytes)
        self.device.upload(block, bound)
        return ExpectedOnDevice(expected, reference, block)

    def wrong_output(self, output: Block, want: ExpectedOnDevice) -> str | None:
        """Describe an error in an output; None where every element is within its bound."""
        kernel = _kernel(want.expected.element)
        count = want.expected.reference.size
        if kernel == "check_bytes":
            count = output.bytes
        bound = want.reference if want.bound is None else want.bound
        found = self._count(kernel, output, want.reference, bound, count)
        if not found:
            return None
        # Rare, so the host may say what and where.
        copy = self.device.download(output, want.expected.reference)
        described = mismatch([want.expected], [copy])
        return described or f"output {want.expected.name!r}: {found} elements are wrong"

    def differs(self, block: Block, pristine: Block) -> bool:
        """Return whether an array has other bytes than its copy."""
        return self._count("check_bytes", block, pristine, pristine, block.bytes) > 0

    def _count(self, kernel: str, got: Block, want: Block, bound: Block, count: int) -> int:
        """Elements (or words of bytes) that are wrong."""
        blocks = min(_MOST_BLOCKS, max(1, -(-count // (_THREADS * _PER_THREAD))))
        threads = blocks * _THREADS
        if self._counts is None:
            self._counts = self.device.allocate("counts of errors", 8 * _MOST_BLOCKS * _THREADS)
        pointers = [it.pointer for it in (got, want, bound, self._counts)]
        parameters = [c_uint64(value) for value in (*pointers, count, threads)]
        driver, stream = self.device.driver, self.device.stream
        # A check that did not run must not pass.
        driver.fill(self._counts.pointer, 0xFF, 8 * threads)
        driver.launch(
            self.function(kernel), (blocks, 1, 1), (_THREADS, 1, 1), 0, stream, parameters
        )
        self.device.synchronize()
        counts = self.device.download(self._counts, np.empty(threads, np.uint64))
        return int(counts.sum(dtype=np.float64))


def _kernel(element: ElementType) -> str:
    return f"check_{element.name}" if element.name in _FLOATS else "check_bytes"


def wrong_outputs(
    checker: DeviceChecker, outputs: Sequence[Block], expected: Sequence[ExpectedOnDevice]
) -> str | None:
    """Describe the first output that is wrong; None where all are right."""
    for output, want in zip(outputs, expected, strict=True):
        wrong = checker.wrong_output(output, want)
        if wrong is not None:
            return wrong
    return None

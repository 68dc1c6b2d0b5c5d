"""The printer of CUDA C++: kernels of scalar code, which the device's compiler schedules.

Numbers of 16-bit floats are their bits, as in C, and computed with in single precision. Several
neighbouring elements are read and written at once where they are aligned. The text needs no
header, neither of NVRTC nor of a compiler for a CPU, in which it runs for tests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from attrs import define, field, frozen

from autotune.errors import UnsupportedWorkload
from autotune.lower.c import CEmitter, Function, Parts, c_type, scalar_text, size_of
from autotune.lower.elementary import ELEMENTARY
from autotune.lower.emitter import Value
from autotune.lower.instructions.fetches import BULK_COPIES, COPIES, waiting
from autotune.lower.linear import Digits, Linear
from autotune.lower.pipelines import SWIZZLED_ROWS, Moved, Request, TensorBox
from autotune.lower.places import Place
from autotune.lower.resident_blocks import resident_blocks
from autotune.sketches.copy_engine import SWIZZLED_ALIGNMENT
from autotune.targets import Target

__all__ = ["CudaEmitter", "PrintedKernel", "identifier"]

# Bytes that a thread reads or writes at once, at most.
_VECTOR_BYTES = 16
_WORD_BYTES = 4
# Shared memory that a kernel may declare; more has to be asked for when it is launched.
_STATIC_SHARED_BYTES = 48 << 10
_ALIGNMENT = 16
_BITS = {"float32": ("uint32_t", "uint32"), "float64": ("uint64_t", "uint64")}
# Functions to single precision, and those that round it.
_WIDENED = {"float16": "of_half", "bfloat16": "of_bfloat"}
_ROUNDED = {"float16": "to_half", "bfloat16": "to_bfloat"}
_DYNAMIC = "buf_dyn_shmem_ptr"

_PRELUDE = """\
#ifndef AUTOTUNE_PRELUDE
#define AUTOTUNE_PRELUDE
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INT64_C(value) value##LL
#define UINT64_C(value) value##ULL
#elif defined(__CUDACC__)
#include <cstdint>
#endif
#define DIV(value, by) ((int)((unsigned)(value) / (by)))
#define MOD(value, by) ((int)((unsigned)(value) % (by)))
#define AT_MOST_0(value) ((value) < 0 ? (value) : 0)
#define AT_LEAST_0(value) ((value) > 0 ? (value) : 0)
template <class T, int N> struct alignas(sizeof(T) * N) vec { T at[N]; };
template <class To, class From> static inline __device__ To as(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  union { From given; To wanted; } both;
  both.given = from;
  return both.wanted;
}
// NaN where one of both is, which CUDA's own leave out.
static inline __device__ float larger(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float found;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
#else
  return a > b || a != a ? a : b;
#endif
}
static inline __device__ float smaller(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float found;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
#else
  return a < b || a != a ? a : b;
#endif
}
#endif
"""

_SWIZZLED = """\
#ifndef AUTOTUNE_SWIZZLED
#define AUTOTUNE_SWIZZLED
// An element of rows of so many parts of 16 bytes, of which the copy engine exchanges these.
template <int kParts, class T> static inline __device__ T& swizzled(T& at) {
  const uint64_t place = (uint64_t)&at, other = place ^ (place >> 7 & (kParts - 1)) << 4;
  return *(T*)((char*)&at + (int)(other - place));
}
#endif
"""

# The compiler's own header has the type of descriptors; NVRTC has none.
_DESCRIPTORS = """\
#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#include <cuda.h>
#endif
"""

_HALVES = """\
#ifndef AUTOTUNE_HALVES
#define AUTOTUNE_HALVES
#ifdef __CUDA_ARCH__
static inline __device__ float of_half(uint16_t bits) {
  float found;
  asm("cvt.f32.f16 %0, %1;" : "=f"(found) : "h"(bits));
  return found;
}
static inline __device__ uint16_t to_half(float value) {
  uint16_t found;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(found) : "f"(value));
  return found;
}
#else
static inline float of_half(uint16_t bits) {
  const uint32_t rest = (uint32_t)(bits & 0x7fff) << 13;
  const float found = as<float>(rest) * 0x1p112f;
  const uint32_t whole = found < 65536.0f ? as<uint32_t>(found) : rest | 0x7f800000u;
  return as<float>(whole | (uint32_t)(bits & 0x8000) << 16);
}
static inline uint16_t to_half(float value) {
  const uint32_t bits = as<uint32_t>(value), rest = bits & 0x7fffffffu;
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  if (rest > 0x7f800000u) return sign | 0x7e00;
  if (rest >= 0x47800000u) return sign | 0x7c00;
  if (rest < 0x38800000u) {
    return sign | (uint16_t)(as<uint32_t>(as<float>(rest) + 0.5f) - 0x3f000000u);
  }
  return sign | (uint16_t)((rest + (0xfffu - (112u << 23)) + (rest >> 13 & 1)) >> 13);
}
#endif
static inline __device__ float of_bfloat(uint16_t bits) {
#ifdef __CUDA_ARCH__
  float found;
  asm("mov.b32 %0, {0, %1};" : "=f"(found) : "h"(bits));
  return found;
#else
  return as<float>((uint32_t)bits << 16);
#endif
}
static inline __device__ uint16_t to_bfloat(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint16_t found;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(found) : "f"(value));
  return found;
#else
  const uint32_t bits = as<uint32_t>(value);
  return value != value ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}
#endif
"""


def _is_at_once(dtype: str, lanes: int) -> bool:
    """Tell whether so many elements are read and written at once, where they are aligned."""
    return lanes > 1 and not lanes & (lanes - 1) and lanes * size_of(dtype) <= _VECTOR_BYTES


def _words(dtype: str, lanes: int) -> tuple[str, int]:
    """The words that neighbouring elements are, which take fewer registers than the elements."""
    total = lanes * size_of(dtype)
    word = min(total, _WORD_BYTES)
    return (dtype, lanes) if size_of(dtype) >= word else (f"uint{8 * word}", total // word)


def _vec(dtype: str, lanes: int) -> str:
    return f"vec<{c_type(dtype)}, {lanes}>"


def _together(value: Value, kind: tuple[str, int]) -> str:
    """The lanes of a value as a vector of elements and a number of them."""
    own = value.dtype, value.lanes
    text = f"{_vec(*own)}{{{{{', '.join(value.handle.texts)}}}}}"
    return text if own == kind else f"as<{_vec(*kind)}>({text})"


def identifier(name: str) -> str:
    """A name of the workload as one of C."""
    return re.sub(r"\W", "_", name)


@frozen
class PrintedKernel:
    """Launch of a kernel of a printed program.

    Attributes:
        name: Its name.
        grid: Blocks in x, y and z.
        block: Threads of a block in x, y and z.
        shared_bytes: Shared memory that its launch asks for.
        arguments: Names of the buffers that it takes.
        boxes: Descriptors of tensors that it takes behind these.
    """

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[str, ...]
    boxes: tuple[TensorBox, ...] = ()


@define(eq=False)
class CudaEmitter(CEmitter):
    """Prints kernels.

    Attributes:
        kernels: Launches of those that are printed, in order.
        target: What blocks share there decides how many registers kernels of matrix instructions
            are given; None: the compiler does.
    """

    prefix: str = "kernel"
    width: int = 1
    kernels: list[PrintedKernel] = field(factory=list)
    target: Target | None = None
    _defined: list[str] = field(factory=list)
    _written: set[str] = field(factory=set)
    _shared: dict[str, tuple[str, int]] = field(factory=dict)
    _rows: dict[str, int] = field(factory=dict)
    _boxes: dict[TensorBox, str] = field(factory=dict)

    def begin(
        self,
        digits: Digits,
        inputs: Sequence[Place],
        outputs: Sequence[Place],
        scratch: Sequence[Place],
    ) -> None:
        super().begin(digits, inputs, outputs, scratch)
        self._written = {place.name for place in (*outputs, *scratch)}

    def finish(self) -> str:
        text = "\n".join([*self._defined, *self._texts])
        halves = _HALVES if re.search(r"\b(of|to)_(half|bfloat)\(", text) else ""
        copies = COPIES if "autotune_end_copies(" in text else ""
        bulk = f"{_DESCRIPTORS}{BULK_COPIES}{_SWIZZLED}" if "autotune_bulk_" in text else ""
        return f"{_PRELUDE}{halves}{copies}{bulk}{text}"

    @contextmanager
    def kernel(
        self,
        taken: Sequence[str],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        registers: int = 0,
    ) -> Iterator[None]:
        """A kernel that takes the buffers of these names.

        Args:
            taken: The names.
            grid: Its blocks.
            block: Threads of each.
            registers: What a thread needs, where the compiler is to give it as many; else 0.
        """
        name = f"{self.prefix}{len(self.kernels)}"
        places = [place for place in self._places if place.name in taken]
        function = Function(bases={it.name: f"{identifier(it.name)}_ptr" for it in places})
        self._functions, self._shared, self._rows, self._boxes = [function], {}, {}, {}
        yield
        self._functions = []
        parameters = ", ".join(
            ("" if place.name in self._written else "const ")
            + f"{c_type(place.dtype)} *__restrict__ {function.bases[place.name]}"
            for place in places
        )
        parameters += "".join(
            f", const __grid_constant__ CUtensorMap {name}" for name in self._boxes.values()
        )
        shared, dynamic = self._shared_arrays()
        stacks = [f"  {kind} {it}[{n}];" for it, (kind, n) in function.stacks.items()]
        body = "\n".join([*shared, *function.declarations, *stacks, *function.lines])
        bounds = self._bounds(grid, block, registers)
        head = f'extern "C" __global__ void __launch_bounds__({bounds}) {name}'
        self._texts.append(f"{head}({parameters}) {{\n{body}\n}}\n")
        arguments = tuple(place.name for place in places)
        self.kernels.append(PrintedKernel(name, grid, block, dynamic, arguments, (*self._boxes,)))

    def _bounds(self, grid: tuple[int, ...], block: tuple[int, ...], registers: int) -> str:
        """Threads of a block, and how many blocks a multiprocessor holds where that matters."""
        threads, blocks = str(math.prod(block)), 0
        if registers and self.target is not None:
            shared = sum(elements * size_of(kind) for kind, elements in self._shared.values())
            blocks = resident_blocks(grid, block, registers, shared, self.target)
        return f"{threads}, {blocks}" if blocks else threads

    def _shared_arrays(self) -> tuple[list[str], int]:
        """Declarations of shared memory, and how much of it the launch has to ask for."""
        places, total = dict[str, int](), 0
        for name, (kind, elements) in self._shared.items():
            alignment = SWIZZLED_ALIGNMENT if name in self._rows else _ALIGNMENT
            places[name] = -(-total // alignment) * alignment
            total = places[name] + elements * size_of(kind)
        total = -(-total // _ALIGNMENT) * _ALIGNMENT
        # Functions of the copy engine have barriers of their own in static memory.
        if total <= _STATIC_SHARED_BYTES and not self._rows:
            declared = [
                f"  __shared__ alignas({_ALIGNMENT}) {c_type(kind)} {name}[{elements}];"
                for name, (kind, elements) in self._shared.items()
            ]
            return declared, 0
        declared = [f"  extern __shared__ __align__(1024) unsigned char {_DYNAMIC}[];"]
        for name, (kind, _) in self._shared.items():
            own = c_type(kind)
            declared.append(f"  {own} *const {name} = ({own} *)({_DYNAMIC} + {places[name]});")
        return declared, total

    @contextmanager
    def counter(self, digit: str, text: str) -> Iterator[None]:
        """Inside, a digit has the value of a text."""
        name, before = self._name("i"), self._at.counters.get(digit)
        self._line(f"const int {name} = {text};")
        self._at.counters[digit] = name
        yield
        del self._at.counters[digit]
        if before is not None:
            self._at.counters[digit] = before

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A block for names of its own."""
        self._line("{")
        self._at.depth += 1
        yield
        self._at.depth -= 1
        self._line("}")

    @contextmanager
    def only(self, text: str) -> Iterator[None]:
        """Begin what only some threads run."""
        with self._block(f"if ({text})"):
            yield

    @contextmanager
    def loop(self, counter: str, begin: Linear, end: Linear, kind: str) -> Iterator[None]:
        if kind in ("unrolled", "vthread", "vectorized"):
            self._line("#pragma unroll")
        yield from self._counted(counter, self._integer(begin), self._integer(end))

    def _counted(self, counter: str, begin: str, end: str) -> Iterator[None]:
        name = self._name("i")
        with self._block(f"for (int {name} = {begin}; {name} < {end}; ++{name})"):
            self._at.counters[counter] = name
            yield
            del self._at.counters[counter]

    def barrier(self) -> None:
        """Wait for all threads of the block."""
        self._line("__syncthreads();")

    def allocate_shared(self, place: Place, stages: int = 1, row: int = 0) -> None:
        """Make room for a place that the threads of a block share.

        Args:
            place: The place of one stage.
            stages: How many of them lie one after the other.
            row: Bytes of its rows, where the copy engine swizzles them.
        """
        if place.name in self._at.bases:
            return
        name = identifier(place.name)
        self._at.bases[place.name] = name
        self._shared[name] = place.dtype, place.elements * stages
        if row:
            self._rows[name] = row

    def allocate_local(self, place: Place, copies: int) -> None:
        """Make room for a place of each thread, once for each of its virtual threads."""
        if place.name not in self._at.bases:
            name = identifier(place.name)
            self._at.bases[place.name] = name
            self._at.stacks[name] = c_type(place.dtype), place.elements * copies

    def from_thread(self, value: Value, distance: int, width: int) -> Value:
        """The value of the thread so many lanes further, within parts of ``width`` lanes."""
        text, kind = scalar_text(value), c_type(value.dtype)
        wide = "int" if size_of(value.dtype) < 4 else kind
        given = f"0xffffffffu, ({wide}){text}, {distance}, {width}"
        found = f"({kind})__shfl_down_sync({given})"
        return self._value(lambda *_: found, value.dtype)

    # Copies ahead

    @contextmanager
    def ahead(self, digit: str, iterations: int, extent: int) -> Iterator[None]:
        """Begin what is done for an iteration so many further, where there is one."""
        own = self._at.counters[digit]
        with (
            self._block(f"if ({own} < {extent - iterations})"),
            self.counter(digit, f"{own} + {iterations}"),
        ):
            yield

    def copy(self, to: Place, what: Moved, valid: Value | None) -> None:
        """Begin to copy elements, or zeros where they are not valid."""
        places = (to, what.to), (what.place, what.at)
        given = [self.place(place, at) for place, at in places]
        name = f"autotune_copy_{what.lanes * size_of(to.dtype)}"
        if valid is not None:
            name, given = f"{name}_if", [*given, scalar_text(valid)]
        self._line(f"{name}({', '.join(given)});")

    def end_copies(self) -> None:
        """Close the group of what a thread has begun to copy."""
        self._line("autotune_end_copies();")

    def wait_for_copies(self, groups: int) -> None:
        """Wait until at most so many of a thread's groups are on their way."""
        self._line(f"{waiting(groups)}();")

    def begin_bulk(self, stages: int, buffers: int) -> None:
        """Make the barriers of all stages, for so many buffers each."""
        self._line(f"autotune_bulk_begin({stages}, {buffers});")

    def request(self, place: Place, requests: Sequence[Request], stage: Linear) -> None:
        """Ask for boxes that are a whole stage of a place."""
        number = self._integer(stage)
        self._line(f"autotune_bulk_expect({number}, {place.bytes});")
        aligned = SWIZZLED_ROWS * self._rows[self._at.bases[place.name]]
        for it in requests:
            name = f"{identifier(it.tensor.buffer)}_map{len(self._boxes) or ''}"
            name = self._boxes.setdefault(it.tensor, name)
            to = f"{self.place(place, it.to)}, (unsigned long long)&{name}"
            corner = ", ".join(self._integer(index) for index in reversed(it.corner))
            self._line(
                f"autotune_bulk_copy_{len(it.corner)}({to}, {number}, {aligned}, {corner});"
            )

    def wait_for_bulk(self, stage: Linear, parity: Linear) -> None:
        """Wait until all is there that was asked for in a stage's round of this parity."""
        self._line(f"autotune_bulk_wait({self._integer(stage)}, {self._integer(parity)});")

    # Instructions of warps

    def define(self, source: str) -> None:
        """Define functions of the device before all kernels, once."""
        if source not in self._defined:
            self._defined.append(source)

    def call(self, name: str, *arguments: str) -> None:
        """Call a function of the device."""
        self._line(f"{name}({', '.join(arguments)});")

    def place(self, place: Place, at: Linear) -> str:
        """The address of an element, as an argument of :meth:`call`."""
        return f"&{super()._element(place, at, 0)}"

    def rounded(self, name: str, value: Value) -> Value:
        """Numbers of single precision whose bits a function of the device has rounded."""
        texts = value.handle.texts
        return self._value(
            lambda part, _: f"as<float>({name}(as<uint32_t>({texts[part]})))",
            value.dtype,
            value.lanes,
        )

    # Memory

    def _integer(self, linear: Linear) -> str:
        return super()._integer(self._digits.joined(self._digits.resolved(linear)))

    def _element(self, place: Place, at: Linear, offset: int, more: str = "") -> str:
        text = super()._element(place, at, offset, more)
        row = self._rows.get(self._at.bases[place.name])
        return f"swizzled<{row // _ALIGNMENT}>({text})" if row else text

    def _loaded(
        self, place: Place, at: Linear, lanes: int, mask: Value | None, more: str = ""
    ) -> Value:
        if more or mask is not None or not self._is_vector(place, at, lanes):
            return super()._loaded(place, at, lanes, mask, more)
        stored = "uint8" if place.dtype == "bool" else place.dtype
        words = _words(stored, lanes)
        const = "" if place.name in self._written else "const "
        source = f"*({const}{_vec(*words)} *)&{self._element(place, at, 0)}"
        own = source if words == (stored, lanes) else f"as<{_vec(stored, lanes)}>({source})"
        value = self._taken(own, stored, lanes)
        return self.cast(value, "bool") if place.dtype == "bool" else value

    def store(
        self, place: Place, at: Linear, value: Value, mask: Value | None, stream: bool
    ) -> None:
        if mask is not None or not self._is_vector(place, at, value.lanes):
            super().store(place, at, value, mask, stream)
            return
        if value.dtype == "bool":
            value = self.cast(value, "uint8")
        words = _words(value.dtype, value.lanes)
        given = _together(value, words)
        self._line(f"*({_vec(*words)} *)&{self._element(place, at, 0)} = {given};")

    def _is_vector(self, place: Place, at: Linear, lanes: int) -> bool:
        """Tell whether elements are read and written at once."""
        if not _is_at_once(place.dtype, lanes) or self._at.bases[place.name] in self._at.stacks:
            return False
        form = self._digits.resolved(at)
        return math.gcd(form.constant, *(factor for _, factor in form.terms)) % lanes == 0

    # Values

    def choose(self, condition: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        kinds: list[tuple[str, int]] = []

        # Narrow elements are chosen in words, which stay whole from a load to a store.
        def in_words(value: Value) -> Value:
            kinds.append((value.dtype, value.lanes))
            if value.dtype == "bool" or not _is_at_once(*kinds[-1]):
                return value
            words = _words(*kinds[-1])
            return value if words == kinds[-1] else self._taken(_together(value, words), *words)

        found = super().choose(condition, lambda: in_words(yes()), lambda: in_words(no()))
        if (found.dtype, found.lanes) == kinds[0]:
            return found
        return self._taken(_together(found, kinds[0]), *kinds[0])

    def _taken(self, source: str, dtype: str, lanes: int) -> Value:
        """The elements of a vector as a value."""
        name = self._name()
        self._line(f"const {_vec(dtype, lanes)} {name} = {source};")
        texts = tuple(f"{name}.at[{number}]" for number in range(lanes))
        return Value(Parts(texts, size_of(dtype)), dtype, lanes)

    def constant(self, value: float | int | bool, dtype: str) -> Value:
        if dtype not in _BITS or math.isfinite(value):
            return super().constant(value, dtype)
        unsigned, bits = _BITS[dtype]
        shown = int(np.asarray(value, dtype).view(bits))
        return Value(
            Parts((f"as<{c_type(dtype)}>(({unsigned}){shown:#x}u)",), size_of(dtype)), dtype
        )

    # Operations

    def unary(self, op: str, operand: Value) -> Value:
        if operand.dtype != "float32" or (op not in ELEMENTARY and op != "rsqrt"):
            return super().unary(op, operand)
        if op != "sigmoid":
            return self.called(op, operand)
        one = self.constant(1.0, "float32")
        grown = self.called("exp", self.unary("neg", operand))
        return self.binary("div", one, self.binary("add", one, grown))

    def binary(self, op: str, left: Value, right: Value) -> Value:
        if op not in ("max", "min") or left.dtype != "float32":
            return super().binary(op, left, right)
        left, right = self.same(left, right)
        name, pairs = {"max": "larger", "min": "smaller"}[op], (left, right)
        texts = [it.handle.texts for it in pairs]
        return self._value(
            lambda part, _: f"{name}({texts[0][part]}, {texts[1][part]})", "float32", left.lanes
        )

    def function_name(self, name: str, dtype: str) -> str:
        return f"{name}{'f' if dtype == 'float32' else ''}"

    def cast(self, value: Value, dtype: str) -> Value:
        if value.dtype != dtype and value.dtype in _WIDENED:
            return self.cast(self._converted(_WIDENED[value.dtype], value, "float32"), dtype)
        if value.dtype != dtype and dtype in _ROUNDED:
            return self._converted(_ROUNDED[dtype], self.cast(value, "float32"), dtype)
        return super().cast(value, dtype)

    def _converted(self, name: str, value: Value, dtype: str) -> Value:
        """Return what a function of the device makes of each lane."""
        texts = value.handle.texts
        return self._value(lambda part, _: f"{name}({texts[part]})", dtype, value.lanes)

    def bitcast(self, value: Value, dtype: str, lanes: int) -> Value:
        if lanes != value.lanes:
            raise UnsupportedWorkload("a schedule regroups lanes, which kernels do not")
        texts, kind = value.handle.texts, c_type(dtype)
        return self._value(lambda part, _: f"as<{kind}>({texts[part]})", dtype, lanes)

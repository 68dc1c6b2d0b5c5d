"""CUDA source of a warpgroup's tile: products of what lies in shared memory, by ``wgmma``.

One function, called by every thread, begins all steps between two fetches: it describes where the
core matrices of both factors lie, and has an instruction for every 64 rows and every step. Results
are in the registers of threads, as ``mma.sync`` has them, once another function has waited.

Factors are written by the generic proxy, by stores and by asynchronous copies that have arrived,
and read by the asynchronous one: hence :data:`SHARE`, a fence of every thread for what it has
written itself, before a barrier. Where products have ended, no fence is needed to write again.
Descriptors (PTX ISA, "Matrix Descriptor Format" and "Canonical Layouts") are those without
swizzling, where threads copy: the distance of core matrices along rows of 16 bytes, and across
them, is any multiple of 16 bytes, so that planes with a row of padding are as good as others. What
the copy engine has fetched lies in planes of rows of 32, 64 or 128 bytes, whose parts of 16 bytes
are exchanged by bits of their addresses: planes and groups of eight rows begin where these are
zero, and the steps of the reduction within a row only move where an instruction begins.
"""

from __future__ import annotations

from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.lower.instructions.warps import once, own_result, tile_name
from autotune.sketches.intrinsics import Intrinsic

__all__ = [
    "CORE_ROW_BYTES",
    "SHARE",
    "WAIT",
    "WarpgroupTile",
    "end_name",
    "function_name",
    "function_source",
    "shared_source",
]

SHARE = "autotune_wgmma_share"
"""Name of the function that lets products read what its thread has written, after a barrier."""

WAIT = "autotune_wgmma_wait"
"""Name of the function that waits until all products of a warpgroup have ended."""

_END = "autotune_wgmma_end"

CORE_ROW_BYTES = 16
"""Of a row of a core matrix."""

# Core matrices have eight rows of 16 bytes.
_ROWS = 8
# What descriptors call layouts, by the bytes of a row: swizzled but for the first.
_LAYOUTS = {16: 0, 32: 3, 64: 2, 128: 1}


@frozen
class _Kind:
    """Types in PTX and C++, and the letter of their registers in inline assembly.

    Attributes:
        factor: PTX's name of the factors.
        total: PTX's name of the sums.
        sums: Their type in C++.
        letter: Of their registers.
        signed: Whether the instruction takes signs of factors.
        turned: Whether it takes which of them are transposed.
    """

    factor: str
    total: str
    sums: str
    letter: str
    signed: bool
    turned: bool


_KINDS = {
    "float16": _Kind("f16", "f32", "float", "f", True, True),
    "bfloat16": _Kind("bf16", "f32", "float", "f", True, True),
    "float32": _Kind("tf32", "f32", "float", "f", True, False),
    "int8": _Kind("s8", "s32", "int", "r", False, False),
}


@frozen
class WarpgroupTile:
    """The tile of a warpgroup, of which one call does all steps between two fetches.

    Attributes:
        call: The instruction, of eight columns.
        down: Instructions down the rows.
        across: Columns of an instruction, in eights.
        steps: Instructions along the reduction.
        left_along_reduction: Whether rows of the left factor's core matrices lie along the
            reduction; else along its results.
        right_along_reduction: The same for the right factor.
        row_bytes: Of a row of either factor's planes: 16, or what is swizzled: 32, 64 or 128.

    Raises:
        InvalidValueError: there is no such instruction.
    """

    call: Intrinsic
    down: int
    across: int
    steps: int
    left_along_reduction: bool
    right_along_reduction: bool
    row_bytes: tuple[int, int] = (CORE_ROW_BYTES, CORE_ROW_BYTES)

    def __attrs_post_init__(self) -> None:
        name = self.call.name
        if not self.call.is_of_warpgroup or self.call.left.dtype not in _KINDS:
            raise InvalidValueError(f"intrinsic {name!r} is no wgmma of {', '.join(_KINDS)}")
        if not self.call.takes_columns(self.across):
            raise InvalidValueError(f"{name!r}: no instruction has {self.columns} columns")
        for row in self.row_bytes:
            if row not in _LAYOUTS:
                allowed = ", ".join(map(str, _LAYOUTS))
                raise InvalidValueError(f"{name!r}: rows of {row} bytes; allowed: {allowed}")
        if any(_transposed(self)) and not self.kind.turned:
            raise InvalidValueError(f"{name!r}: {self.kind.factor} must lie along the reduction")

    @property
    def kind(self) -> _Kind:
        """Its types."""
        return _KINDS[self.call.left.dtype]

    @property
    def columns(self) -> int:
        """Columns of one instruction."""
        return self.across * self.call.spatial_axes[1].extent


def function_name(tile: WarpgroupTile) -> str:
    """Name of the function that begins all steps of the tile."""
    along = (tile.left_along_reduction, tile.right_along_reduction)
    plain = tile_name(tile.call, (tile.down, tile.across, tile.steps), along)
    swizzled = any(row != CORE_ROW_BYTES for row in tile.row_bytes)
    return f"{plain}_{tile.row_bytes[0]}x{tile.row_bytes[1]}" if swizzled else plain


def end_name(tile: WarpgroupTile) -> str:
    """Name of the function that waits for all products; after it, sums may be read."""
    return f"{_END}<{_sums(tile)}>"


def _sums(tile: WarpgroupTile) -> int:
    """Results of a thread."""
    return tile.down * tile.across * tile.call.result.elements // tile.call.lanes


def shared_source() -> str:
    """Source that all tiles share, as CUDA C++."""
    return f"{once('AUTOTUNE_WGMMA', _GROUPS)}\n"


def function_source(tile: WarpgroupTile) -> str:
    """The function and the instructions that it uses, as CUDA C++.

    It takes the sums of the thread; what the thread's own first result reads of either factor, in
    shared memory; and the bytes from one plane of each to the next.
    """
    sums = _sums(tile) // tile.down
    left, right = _Place(tile, "left"), _Place(tile, "right")
    product = _product_name(tile)
    return f"""{shared_source()}{once(product.upper(), _product_source(tile))}
static __device__ __forceinline__ void {function_name(tile)}(
    {tile.kind.sums}* sums, const void* left, int left_plane, const void* right,
    int right_plane) {{
  const int lane = threadIdx.x & {tile.call.lanes - 1};
  const unsigned long long a = autotune_wgmma_matrix({left.base}, {left.layout});
  const unsigned long long b = autotune_wgmma_matrix({right.base}, {right.layout});
  autotune_wgmma_begin<{_sums(tile)}>(sums);
#pragma unroll
  for (int s = 0; s < {tile.steps}; ++s)
#pragma unroll
    for (int f = 0; f < {tile.down}; ++f)
      {product}(sums + f * {sums}, a + (({left.step} + f * {left.fragment}) >> 4),
          b + ({right.step} >> 4));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}}
"""


class _Place:
    """Places of a factor's core matrices, as expressions of the function: in bytes."""

    def __init__(self, tile: WarpgroupTile, name: str) -> None:
        is_left = name == "left"
        operand = tile.call.left if is_left else tile.call.right
        along = tile.left_along_reduction if is_left else tile.right_along_reduction
        size = element_type(operand.dtype).bytes
        row = tile.row_bytes[0 if is_left else 1]
        width, swizzled = row // size, row != CORE_ROW_BYTES
        axis = tile.call.spatial_axes[0 if is_left else 1]
        depth = tile.call.reduce_axes[0].extent
        plane, group = f"{name}_plane", str(_ROWS * row)
        own = " + ".join(own_result(tile.call, operand))
        if along:
            # A plane has all results, and as many terms as a row.
            offset = f"({own}) * {row}"
            # Of swizzled rows an instruction reads 32 bytes of one plane.
            leading, stride = (str(CORE_ROW_BYTES) if swizzled else plane), group
            calls = width // depth
            self.step = f"s * ({depth // width} * {plane})"
            if swizzled:
                self.step = f"(s / {calls} * {plane} + s % {calls} * {depth * size})"
            self.fragment = str(axis.extent * row)
        else:
            # A plane has all terms, and as many results as a row.
            offset = f"({own}) / {width} * {plane} + ({own}) % {width} * {size}"
            leading, stride = (plane, group) if swizzled else (group, plane)
            self.step = f"s * {depth * row}"
            self.fragment = f"({axis.extent // width} * {plane})"
        self.base = f"static_cast<const char*>({name}) - ({offset})"
        self.layout = f"{leading}, {stride}, {_LAYOUTS[row]}"


def _product_name(tile: WarpgroupTile) -> str:
    depth = tile.call.reduce_axes[0].extent
    turned = "".join(map(str, _transposed(tile)))
    return f"autotune_wgmma_m64n{tile.columns}k{depth}_{tile.kind.factor}_{turned}"


def _transposed(tile: WarpgroupTile) -> tuple[int, int]:
    return int(not tile.left_along_reduction), int(not tile.right_along_reduction)


def _product_source(tile: WarpgroupTile) -> str:
    """Write an instruction: a lane's sums are, of every eight columns, two pairs, 8 rows apart.

    A thread's sums are in the order of its loops: rows of the lane, eights of columns, neighbours.
    The instruction has those of eight columns after each other.
    """
    kind, depth = tile.kind, tile.call.reduce_axes[0].extent
    places = [
        (row * tile.across + eight) * 2 + pair
        for eight in range(tile.across)
        for row in range(2)
        for pair in range(2)
    ]
    count = len(places)
    registers = ", ".join(f"%{number}" for number in range(count))
    outputs = ", ".join(f'"+{kind.letter}"(sums[{place}])' for place in places)
    # Sums are added to; factors have their own signs.
    turned = ", ".join(map(str, _transposed(tile)))
    options = ", ".join(
        ["1", *(["1, 1"] if kind.signed else []), *([turned] if kind.turned else [])]
    )
    types = f"{kind.total}.{kind.factor}.{kind.factor}"
    return f"""static __device__ __forceinline__ void {_product_name(tile)}(
    {kind.sums}* sums, unsigned long long left, unsigned long long right) {{
  asm volatile("wgmma.mma_async.sync.aligned.m64n{tile.columns}k{depth}.{types} "
               "{{{registers}}}, %{count}, %{count + 1}, {options};"
               : {outputs}
               : "l"(left), "l"(right));
}}"""


# What is begun reads and writes registers until it is waited for: the compiler must neither
# compute them later nor copy them before.
_GROUPS = f"""static __device__ __forceinline__ unsigned long long autotune_wgmma_matrix(
    const char* start, int leading, int stride, int layout) {{
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(start));
  return static_cast<unsigned long long>((at & 0x3ffff) >> 4) |
         static_cast<unsigned long long>((leading & 0x3ffff) >> 4) << 16 |
         static_cast<unsigned long long>((stride & 0x3ffff) >> 4) << 32 |
         static_cast<unsigned long long>(layout) << 62;
}}
static __device__ __forceinline__ void autotune_wgmma_hold(float& sum) {{
  asm volatile("" : "+f"(sum) :: "memory");
}}
static __device__ __forceinline__ void autotune_wgmma_hold(int& sum) {{
  asm volatile("" : "+r"(sum) :: "memory");
}}
static __device__ __forceinline__ void {SHARE}() {{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}}
static __device__ __forceinline__ void {WAIT}() {{
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}}
template <int kCount, class Sum>
static __device__ __forceinline__ void autotune_wgmma_begin(Sum* sums) {{
#pragma unroll
  for (int n = 0; n < kCount; ++n) autotune_wgmma_hold(sums[n]);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}}
template <int kCount, class Sum>
static __device__ __forceinline__ void {_END}(Sum* sums) {{
  {WAIT}();
#pragma unroll
  for (int n = 0; n < kCount; ++n) autotune_wgmma_hold(sums[n]);
}}"""

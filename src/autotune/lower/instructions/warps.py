"""CUDA source of a warp's tile: fragments are loaded from shared memory and multiplied.

One function, called by every thread, does one step of a warp's tile: ``ldmatrix`` of every
fragment once, then all products. Which lane gives the address of which row follows from the
declaration's fragments.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.sketches.intrinsics import Fragment, Intrinsic, IntrinsicOperand

__all__ = [
    "WarpTile",
    "function_name",
    "function_source",
    "once",
    "own_result",
    "registers",
    "rounding_name",
    "rounding_source",
    "tile_name",
]

# What PTX calls the types, and C++ and the constraints of inline assembly those of the sums.
_PTX = {
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "s8",
    "float32": "f32",
    "int32": "s32",
}
# How factors of sums of their own type are taken: rounded, as they are loaded.
_ROUNDED = {"float32": "tf32"}
_SUMS = {"float32": ("float", "f"), "int32": ("int", "r")}
# Addresses, predicates, counters: what a thread keeps in registers in addition to data.
_BESIDE_DATA = 24
_MATRICES, _WORD_BYTES = 4, 4
# Of an element: "ldmatrix ... .trans" of PTX's ISA is of matrices of 16-bit elements.
_TRANSPOSED_BYTES = 2


@frozen
class WarpTile:
    """The tile of a warp, of which one call does one step.

    Attributes:
        call: The instruction.
        down: Fragments of the left factor.
        across: Fragments of the right factor.
        left_along_reduction: Whether rows of the left factor lie along the reduction; else along
            its results.
        right_along_reduction: The same for the right factor.

    Raises:
        InvalidValueError: a factor lies along its results that ``ldmatrix`` does not transpose.
    """

    call: Intrinsic
    down: int
    across: int
    left_along_reduction: bool
    right_along_reduction: bool

    def __attrs_post_init__(self) -> None:
        dtype = self.call.left.dtype
        along = self.left_along_reduction and self.right_along_reduction
        if not along and element_type(dtype).bytes != _TRANSPOSED_BYTES:
            raise InvalidValueError(f"{self.call.name!r}: {dtype} must lie along the reduction")


def registers(tile: WarpTile) -> int:
    """Registers of a thread that computes the tile: its sums, fragments of a step, and what else
    it needs. With as many, ptxas finds room to load most fragments a step ahead."""
    call = tile.call
    left = tile.down * _fragment(call, call.left).registers(call.left.dtype)
    right = tile.across * _fragment(call, call.right).registers(call.right.dtype)
    sums = _fragment(call, call.result).registers(call.result.dtype)
    return tile.down * tile.across * sums + left + right + _BESIDE_DATA


def function_name(tile: WarpTile) -> str:
    """Name of the function that does one step of the tile."""
    along = (tile.left_along_reduction, tile.right_along_reduction)
    return tile_name(tile.call, (tile.down, tile.across), along)


def tile_name(call: Intrinsic, counts: Sequence[int], along_reduction: Sequence[bool]) -> str:
    """Name of a function for a tile.

    Args:
        call: The instruction.
        counts: How many of it there are along each dimension of the tile.
        along_reduction: For each factor, whether its rows lie along the reduction.
    """
    layouts = "".join("k" if along else "r" for along in along_reduction)
    stem = call.name.replace("-", "_")
    return f"autotune_{stem}_{'x'.join(map(str, counts))}_{layouts}"


def function_source(tile: WarpTile) -> str:
    """The function and the instructions that it uses, as CUDA C++.

    It takes the sums of the thread; what the thread's own first result reads of either factor, in
    shared memory; and the bytes from one row of each to the next.

    Raises:
        InvalidValueError: the instruction has no fragments, or types without a name in PTX.
    """
    call = tile.call
    left, right = _fragment(call, call.left), _fragment(call, call.right)
    sums, _ = _sum_type(call)
    depth = left.registers(call.left.dtype)
    width = right.registers(call.right.dtype)
    lines = [
        _load_source(not tile.left_along_reduction),
        _load_source(not tile.right_along_reduction),
        rounding_source(call),
        _product_source(call),
        f"static __device__ __forceinline__ void {function_name(tile)}(",
        f"    {sums}* sums, const void* left, int left_row, const void* right, int right_row) {{",
        "  const int lane = threadIdx.x & 31, matrix = lane >> 3, row = lane & 7;",
        f"  unsigned a[{tile.down}][{depth}], b[{tile.across}][{width}];",
        *_loads(tile, call.left, left, "a"),
        *_loads(tile, call.right, right, "b"),
        *_roundings(tile, depth, width),
        *_products(tile),
        "}",
    ]
    return "\n".join(filter(None, lines)) + "\n"


def _fragment(call: Intrinsic, operand: IntrinsicOperand) -> Fragment:
    if operand.fragment is None:
        raise InvalidValueError(
            f"intrinsic {call.name!r} declares no fragment of operand {operand.name!r}"
        )
    return operand.fragment


def _sum_type(call: Intrinsic) -> tuple[str, str]:
    for operand in call.operands:
        if operand.dtype not in _PTX:
            raise InvalidValueError(
                f"intrinsic {call.name!r}: matrix instructions of {operand.dtype} are not "
                f"written; allowed: {', '.join(_PTX)}"
            )
    return _SUMS[call.result.dtype]


def _loads(
    tile: WarpTile, operand: IntrinsicOperand, fragment: Fragment, registers: str
) -> list[str]:
    """Statements that load all fragments of a factor, four 8x8 matrices at a time.

    What is given is the address that the thread's own first result reads; rows are counted from
    the first one of the warp.
    """
    is_left = registers == "a"
    count = tile.down if is_left else tile.across
    along = tile.left_along_reduction if is_left else tile.right_along_reduction
    name = "left" if is_left else "right"
    axis, extent, own = _own_place(tile.call, operand)
    size = element_type(operand.dtype).bytes
    held = fragment.registers(operand.dtype)
    packed = max(1, _WORD_BYTES // size)
    bases = [fragment.position(0, register * packed) for register in range(held)]
    together = max(1, _MATRICES // held)
    fragments = [number // held for number in range(_MATRICES)]
    places = [bases[number % held] for number in range(_MATRICES)]
    result = _bits(
        [place[axis] + extent * at for place, at in zip(places, fragments, strict=True)]
    )
    reduced = _bits([place["k"] for place in places])
    # Along the reduction, rows of a matrix are results; along results, steps of the reduction,
    # and the matrix is transposed while it is loaded.
    if along:
        result, steps = f"row + {result}", (f"{name}_row", str(size))
    else:
        reduced, steps = f"row + {reduced}", (str(size), f"{name}_row")
    place = f"({result} - {own}) * {steps[0]} + ({reduced}) * {steps[1]}"
    suffix = "" if along else "_trans"
    lines = [f"  const char* {name}_at = static_cast<const char*>({name}) + {place};"]
    whole = count // together * together
    if whole:
        lines += [
            "#pragma unroll",
            f"  for (int f = 0; f < {whole}; f += {together})",
            f"    autotune_ldmatrix_x4{suffix}({registers}[f], "
            f"{name}_at + f * {extent} * {steps[0]});",
        ]
    if whole < count:
        lines.append(
            f"  autotune_ldmatrix_x{held}{suffix}({registers}[{whole}], "
            f"{name}_at + {whole * extent} * {steps[0]});"
        )
    return lines


def _roundings(tile: WarpTile, depth: int, width: int) -> list[str]:
    """Statements that round what is loaded, where the instruction would cut it off."""
    name = rounding_name(tile.call)
    if not name:
        return []
    counts = (("a", tile.down, depth), ("b", tile.across, width))
    return [
        line
        for own, count, held in counts
        for line in (
            "#pragma unroll",
            f"  for (int f = 0; f < {count}; ++f)",
            "#pragma unroll",
            f"    for (int r = 0; r < {held}; ++r) {own}[f][r] = {name}({own}[f][r]);",
        )
    ]


def rounding_name(call: Intrinsic) -> str:
    """Name of the function that rounds a factor; "" where an instruction cuts nothing off."""
    kind = _ROUNDED.get(call.left.dtype)
    return "" if kind is None else f"autotune_{kind}"


def rounding_source(call: Intrinsic) -> str:
    """Rounding of a factor in a register to nearest, ties away from zero; "" where none is."""
    kind, name = _ROUNDED.get(call.left.dtype), rounding_name(call)
    if kind is None:
        return ""
    text = f"""static __device__ __forceinline__ unsigned {name}(unsigned value) {{
  unsigned rounded;
  asm volatile("cvt.rna.{kind}.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(value)));
  return rounded;
}}"""
    return once(name.upper(), text)


def _own_place(call: Intrinsic, operand: IntrinsicOperand) -> tuple[str, int, str]:
    """The spatial axis of a factor, its extent, and where the lane's own first result is on it."""
    (spatial,) = (axis for axis in call.spatial_axes if axis.name in dict(operand.layout))
    return spatial.name, spatial.extent, " - ".join(own_result(call, operand)) or "0"


def own_result(call: Intrinsic, operand: IntrinsicOperand) -> list[str]:
    """The parts of the place of the lane's own first result on the spatial axis of a factor."""
    axes = {name for name, _ in operand.layout}
    parts, inner = [], 1
    for digit in reversed(_fragment(call, call.result).lanes):
        if digit.axis in axes:
            place = f"lane / {inner} % {digit.extent}"
            parts.append(place if digit.stride == 1 else f"{place} * {digit.stride}")
        inner *= digit.extent
    return parts


def _bits(values: Sequence[int]) -> str:
    """An expression of the number of a matrix, 0 to 3, that has these values."""
    first, second = values[1] - values[0], values[2] - values[0]
    if values[0] or values[3] != first + second:
        raise InvalidValueError(f"matrices at {list(values)} are not at sums of two distances")
    parts = [f"(matrix & 1) * {first}"] if first else []
    parts += [f"(matrix >> 1) * {second}"] if second else []
    return " + ".join(parts) or "0"


def _products(tile: WarpTile) -> list[str]:
    """Statements that multiply every fragment of the left factor with every one of the right.

    A thread's sums are in the order of its loops: fragments down, rows of the lane, fragments
    across, and neighbours.
    """
    return [
        "#pragma unroll",
        f"  for (int f = 0; f < {tile.down}; ++f)",
        "#pragma unroll",
        f"    for (int g = 0; g < {tile.across}; ++g)",
        f"      {_product_name(tile.call)}(sums + (f * {2 * tile.across} + g) * 2, "
        f"sums + (f * {2 * tile.across} + {tile.across} + g) * 2, a[f], b[g]);",
    ]


def _load_source(transposed: bool) -> str:
    """``ldmatrix`` of four and of two 8x8 matrices of 16-bit elements."""
    suffix, option = ("_trans", ".trans") if transposed else ("", "")
    parts = []
    for count in (4, 2):
        name = f"autotune_ldmatrix_x{count}{suffix}"
        places = ", ".join(f"%{n}" for n in range(count))
        outputs = ", ".join(f'"=r"(to[{n}])' for n in range(count))
        parts.append(
            f"""static __device__ __forceinline__ void {name}(unsigned* to, const void* row) {{
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{option}.shared.b16 {{{places}}}, [%{count}];"
               : {outputs} : "r"(at) : "memory");
}}"""
        )
    return once(f"AUTOTUNE_LDMATRIX{suffix.upper()}", "\n".join(parts))


def _product_name(call: Intrinsic) -> str:
    return f"autotune_{call.name.replace('-', '_')}"


def _product_source(call: Intrinsic) -> str:
    """``mma.sync``: the sums of a lane are two pairs of neighbours, eight rows apart."""
    rows, depth, columns = (axis.extent for axis in call.axes)
    sums, letter = _sum_type(call)
    result = _PTX[call.result.dtype]
    factor = _ROUNDED.get(call.left.dtype, _PTX[call.left.dtype])
    left = _fragment(call, call.left).registers(call.left.dtype)
    right = _fragment(call, call.right).registers(call.right.dtype)
    kept = "{%0, %1, %2, %3}"
    first = "{" + ", ".join(f"%{4 + n}" for n in range(left)) + "}"
    second = "{" + ", ".join(f"%{4 + left + n}" for n in range(right)) + "}"
    shape = f"m{rows}n{columns}k{depth}"
    outputs = ", ".join(
        f'"+{letter}"({place})' for place in ("upper[0]", "upper[1]", "lower[0]", "lower[1]")
    )
    inputs = ", ".join(
        [f'"r"(a[{n}])' for n in range(left)] + [f'"r"(b[{n}])' for n in range(right)]
    )
    name = _product_name(call)
    text = f"""static __device__ __forceinline__ void {name}(
    {sums}* upper, {sums}* lower, const unsigned* a, const unsigned* b) {{
  asm volatile("mma.sync.aligned.{shape}.row.col.{result}.{factor}.{factor}.{result} "
               "{kept}, {first}, {second}, {kept};"
               : {outputs} : {inputs});
}}"""
    return once(name.upper(), text)


def once(name: str, text: str) -> str:
    """Source that may be there several times in a file, which defines it once."""
    return f"#ifndef {name}\n#define {name}\n{text}\n#endif"

"""Symbols of a tiled matrix product on a GPU in closed form, from its factors alone."""

from __future__ import annotations

import math
from collections.abc import Sequence


def published_gemm_symbols(
    i: Sequence[int], j: Sequence[int], k: Sequence[int], lanes: tuple[int, int] = (1, 1)
) -> list[list[float]]:
    """``(F, R, Q, D, G, T)`` of the fetches of A and B, the update and the write-back.

    For a product tiled "block, vthread, thread, serial, serial" along i and j, k split in three,
    operands fetched inside the first part of k with vectors of ``lanes``.
    """
    blocks, vthreads, threads = i[0] * j[0], i[1] * j[1], i[2] * j[2]
    rows, columns, reduced = i[3] * i[4], j[3] * j[4], math.prod(k)
    of_a = vthreads if i[1] > 1 else 1
    of_b = vthreads if j[1] > 1 else 1
    tile = vthreads * rows * columns
    symbols: list[list[float]] = []
    for elements, width in (
        (i[1] * i[2] * rows * k[1] * k[2], lanes[0]),
        (j[1] * j[2] * columns * k[1] * k[2], lanes[1]),
    ):
        copied = math.ceil(elements / (threads * width)) * width * threads
        symbols.append([0, 0, 0, blocks * k[0] * copied, blocks, threads])
    symbols.append(
        [
            2 * tile * reduced,
            tile + of_a * rows + of_b * columns,
            tile + (of_a * rows + of_b * columns) * reduced,
            0,
            blocks,
            threads,
        ]
    )
    symbols.append([0, 0, 0, tile * blocks * threads, blocks, threads])
    return symbols


def corrected_gemm_symbols(
    i: Sequence[int],
    j: Sequence[int],
    k: Sequence[int],
    lanes: tuple[int, int] = (1, 1),
    unroll: int = 0,
) -> list[float]:
    """Symbols of the kernel, in the order of ``CORRECTED_SYMBOLS``.

    In float32; the result is written one element at a time.
    """
    blocks, threads, vthreads = i[0] * j[0], i[2] * j[2], i[1] * j[1]
    rows, columns = i[1] * i[3] * i[4], j[1] * j[3] * j[4]
    m, n, reduced = math.prod(i), math.prod(j), math.prod(k)
    block_rows, block_columns, depth = m // i[0], n // j[0], k[1] * k[2]
    shapes = ((block_rows, depth), (depth, block_columns))
    copies = [
        k[0] * math.ceil(math.prod(shape) / (threads * width))
        for shape, width in zip(shapes, lanes, strict=True)
    ]
    moved = sum(k[0] * shape[0] * 32 * math.ceil(4 * shape[1] / 32) for shape in shapes)
    moved += block_rows * 32 * math.ceil(4 * block_columns / 32)
    body = _straight_line(i, j, k, max(unroll, 512))
    runs = rows * columns * reduced
    loads = [_loads(runs, body, tensor, i, j) for tensor in "ab"]
    fronts = [
        count // shared * _bank_wavefronts(threads_at(tensor, i, j, k), width)
        for tensor, (count, width, shared) in zip("ab", loads, strict=True)
    ]
    fronts += [
        count * _bank_wavefronts([(threads, width)], width)
        for count, width in zip(copies, lanes, strict=True)
    ]
    of_copies = [
        count * _row_lines(shape[1], width)
        for count, shape, width in zip(copies, shapes, lanes, strict=True)
    ]
    written = [(j[2], j[3] * j[4]), (i[2], i[3] * i[4] * n)]
    of_writes = rows * columns * _scattered_lines(written)
    counts = [count // shared for count, _, shared in loads]
    straight = math.prod(body.values())
    tile = i[3] * i[4] * j[3] * j[4] * k[2] * vthreads
    return [
        blocks,
        threads,
        24 + rows * columns + rows + columns,
        4 * sum(map(math.prod, shapes)),
        blocks * moved,
        4 * (m * reduced + reduced * n + m * n),
        16 * runs,  # a multiplication and an addition are one
        runs // straight // 2 + 3 * sum(copies) + 2 * rows * columns + sum(counts),
        sum(fronts),
        sum(of_copies) + of_writes,
        k[0],
        sum(copies),
        0,
        sum(math.ceil(count / min(straight, 16)) for count in counts),
        0,
        rows * columns,
        float(rows * columns >= 64 and tile > (512 if unroll >= 512 else 256)),
        1,  # what is fetched is waited for
    ]


def _straight_line(
    i: Sequence[int], j: Sequence[int], k: Sequence[int], limit: int
) -> dict[str, int]:
    """Extents of the loops that are unrolled, from the inside out."""
    extents = {"j4": j[4], "i4": i[4], "k2": k[2], "j3": j[3], "i3": i[3], "k1": k[1], "k0": k[0]}
    found: dict[str, int] = {}
    for name, extent in extents.items():
        if math.prod(found.values()) * extent > limit:
            break
        found[name] = extent
    return found


def _loads(
    runs: int, body: dict[str, int], tensor: str, i: Sequence[int], j: Sequence[int]
) -> tuple[int, int, int]:
    """Loads of a thread, the elements of each, and the virtual threads that share one."""
    own = {"a": ("i4", "i3"), "b": ("j4", "j3")}[tensor] + ("k2", "k1", "k0")
    elements = math.prod(body.get(name, 1) for name in own)
    in_row = {"a": ("k2", "k1", "k0"), "b": ("j4", "j3")}[tensor]
    width = math.gcd(math.prod(body.get(name, 1) for name in in_row), 4)
    count = runs // math.prod(body.values()) * math.ceil(elements / width)
    return count, width, {"a": j[1], "b": i[1]}[tensor]


def threads_at(
    tensor: str, i: Sequence[int], j: Sequence[int], k: Sequence[int]
) -> list[tuple[int, int]]:
    """Neighbouring threads, and the elements between two of them; the fastest first."""
    if tensor == "a":
        return [(j[2], 0), (i[2], i[3] * i[4] * k[1] * k[2])]
    return [(j[2], j[3] * j[4]), (i[2], 0)]


def _bank_wavefronts(parts: Sequence[tuple[int, int]], width: int) -> int:
    """Times that 32 threads take, each with ``width`` words, as the formula counts them."""
    distinct, met, covered = 1, 1, 1
    for threads, stride in parts:
        count = min(threads, max(1, math.ceil(32 / covered)))
        covered *= threads
        if stride:
            places = 32 // width
            distinct *= count
            met *= min(count, places // min(places, math.gcd(max(1, stride // width), 32)))
    return max(1, math.ceil(distinct * width / min(32, met * width)))


def _row_lines(row: int, width: int) -> int:
    taken = 32 * width
    if row < taken:
        return math.ceil(taken / row) * math.ceil(4 * row / 128)
    return math.ceil(4 * taken / 128)


def _scattered_lines(parts: Sequence[tuple[int, int]]) -> int:
    chunks, span, covered = 1, 4, 1
    for threads, stride in parts:
        count = min(threads, max(1, math.ceil(32 / covered)))
        covered *= threads
        if 4 * stride <= span:
            span = max(span, 4 * stride * count)
        else:
            chunks *= count
    return chunks * math.ceil(span / 128)

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
    i: Sequence[int], j: Sequence[int], k: Sequence[int], lanes: tuple[int, int] = (1, 1)
) -> list[float]:
    """``(G, T, registers, shared, slots, loads, moved, distinct)`` of the kernel.

    In float32; the result is written one element at a time.
    """
    blocks, threads = i[0] * j[0], i[2] * j[2]
    rows, columns = i[1] * i[3] * i[4], j[1] * j[3] * j[4]
    m, n = math.prod(i), math.prod(j)
    block_rows, block_columns, depth = m // i[0], n // j[0], k[1] * k[2]
    elements = ((block_rows * depth, lanes[0]), (block_columns * depth, lanes[1]))
    vectors = [k[0] * math.ceil(count / (threads * width)) for count, width in elements]
    copied = sum(number * width for number, (_, width) in zip(vectors, elements, strict=True))
    reduced = math.prod(k)
    slots = 16 * rows * columns * reduced  # a multiplication and an addition are one
    slots += 8 * 16 * (sum(vectors) + rows * columns)
    moved = k[0] * block_rows * 32 * math.ceil(4 * depth / 32)
    moved += k[0] * depth * 32 * math.ceil(4 * block_columns / 32)
    moved += block_rows * 32 * math.ceil(4 * block_columns / 32)
    return [
        blocks,
        threads,
        24 + rows * columns + rows + columns,
        4 * sum(count for count, _ in elements),
        slots,
        4 * (copied + (rows + columns) * reduced),
        blocks * moved,
        4 * (m * reduced + reduced * n + m * n),
    ]

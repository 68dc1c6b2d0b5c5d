"""A numba kernel with tiles as parameters: `python transpose.py` tunes it."""

import time

import numba
import numpy as np

import autotune

SIZE = 1024
SOURCE = np.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=np.float32)


def kernel(tile_i, tile_j, rows_first):
    """The kernel; numba compiles the values of the closure in as constants."""

    @numba.njit
    def transpose(source, result):
        for i0 in range(0, SIZE, tile_i):
            for j0 in range(0, SIZE, tile_j):
                if rows_first:
                    for i in range(i0, i0 + tile_i):
                        for j in range(j0, j0 + tile_j):
                            result[j, i] = source[i, j]
                else:
                    for j in range(j0, j0 + tile_j):
                        for i in range(i0, i0 + tile_i):
                            result[j, i] = source[i, j]

    return transpose


def measure(tile_i, tile_j, rows_first):
    """Seconds of a call, and what it computes; called in a process of its own."""
    transpose, result = kernel(tile_i, tile_j, rows_first), np.empty_like(SOURCE)
    transpose(SOURCE, result)  # compiles
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        transpose(SOURCE, result)
        seconds.append(time.perf_counter() - begin)
    return min(seconds), result


if __name__ == "__main__":
    powers = {"powers_of_two": {"from": 4, "to": SIZE}}
    found = autotune.external(
        {"tile_i": powers, "tile_j": powers, "rows_first": [True, False]},
        ["tile_i * tile_j <= 65536"],
        "transpose:measure",
        default={"tile_i": 64, "tile_j": SIZE, "rows_first": True},
        validate={"method": "bitexact"},
        repeats=2,
        trials=64,
        threads=1,
    )
    print(found.config, f"{found.latency:.6f} s, {found.result.speedup:.2f} times the default")

"""Limits of a transpose in memory: hand-written ones beside a copy, and what tuning finds.

    python research/transposes.py [--quick] [--trials N] [--rounds N] [--json FILE] [--check]

Two matrices of 8192 x 1024 are put side by side and transposed, as `Concat-memory` of
the benchmark `operators` does, on one thread. By hand, squares of 16 x 16 floats are transposed in
registers and written past the caches, in blocks of many shapes; rows lie as far apart as they do
there, or a line of 64 bytes farther, so that they share no sets of the caches. All take turns with
a copy of as many bytes. Needs g++, a processor with AVX-512, and `autotune-tvm`.
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import benchmarks_path  # noqa: F401
import numpy as np
from numpy.typing import NDArray
from support.common import Bar, basic_parser, finish_with, machine
from support.operator_programs import program_of
from support.operator_rows import LARGE, Row

import autotune
from autotune.targets import detect_cpu

Reals = NDArray[np.float32]
Call = Callable[[], object]

ROWS, COLUMNS = 8192, 1024
LINE = 16
"""Floats of a line of the caches."""
HEIGHTS, WIDTHS = (16, 64, 128, 256, 512), (16, 64, 256)
TRIALS, QUICK_TRIALS = 64, 8
ROUNDS, QUICK_ROUNDS = 15, 3
TUNED, COPY, APART = "autotune", "copy", ", rows apart"
# Of the fastest one by hand on the same arrays.
LEAST_RATIO = 0.85


def main() -> int:
    """Run; returns the exit status."""
    parser = basic_parser(__doc__ or "")
    parser.add_argument("--trials", type=int, help=f"{TRIALS}, or {QUICK_TRIALS} with --quick")
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS}, or {QUICK_ROUNDS} with --quick")
    options = parser.parse_args()
    trials = options.trials or (QUICK_TRIALS if options.quick else TRIALS)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    described = machine()
    print("{processor}, {cores} cores, load {load:.1f}".format(**described), flush=True)
    with compiled() as library:
        calls = dict(ways(library))
        calls[TUNED] = tuned(trials)
        found = timed(calls, rounds)
    moved = 4 * ROWS * COLUMNS * 4
    for name, seconds in sorted(found.items(), key=lambda it: it[1]):
        rate, share = moved / seconds / 1e9, found[COPY] / seconds
        print(f"{name:28} {seconds * 1e3:8.2f} ms {rate:6.1f} GB/s {share:5.2f} of the copy")
    others = (name for name in found if name not in (TUNED, COPY) and not name.endswith(APART))
    ratio = min(found[name] for name in others) / found[TUNED]
    bars = [Bar("speed of what is tuned over the fastest by hand", ratio, LEAST_RATIO)]
    return finish_with(options, {"machine": described, "seconds": found}, bars)


@contextmanager
def compiled() -> Iterator[Any]:
    """The programs written by hand."""
    source = Path(__file__).with_suffix(".cpp")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "transposes.so"))
        flags = ["-std=c++20", "-O3", "-march=native", "-shared", "-fPIC"]
        subprocess.run(["g++", *flags, str(source), "-o", path], check=True)
        library = ctypes.CDLL(path)
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        library.copy.argtypes = [pointer, pointer, size]
        library.transpose.argtypes = [pointer, pointer, *[size] * 6, ctypes.c_int]
        yield library


def ways(library: Any) -> Iterator[tuple[str, Call]]:
    """A copy, and every way to transpose, checked."""
    for apart in (0, LINE):
        inputs = [padded(ROWS, COLUMNS, apart) for _ in range(2)]
        output = padded(2 * COLUMNS, ROWS, apart)
        rng = np.random.default_rng(0)
        for array in inputs:
            array[:] = rng.random(array.shape)
        if not apart:
            yield COPY, partial(copied, library, inputs, output)
        for high, wide, across in itertools.product(HEIGHTS, WIDTHS, (0, 1)):
            call = partial(transposed, library, inputs, output, high, wide, across)
            call()
            assert all(
                np.array_equal(output[i * COLUMNS :][:COLUMNS], inputs[i].T) for i in (0, 1)
            )
            order = "across" if across else "down"
            yield f"{high} x {wide} {order}" + APART * bool(apart), call


def padded(rows: int, columns: int, apart: int) -> Reals:
    """An array whose rows lie so many floats apart, at the start of a page."""
    width, page = columns + apart, 4096
    raw = np.zeros(4 * rows * width + page, np.uint8)
    aligned = raw[-raw.ctypes.data % page :][: 4 * rows * width]
    return aligned.view(np.float32).reshape(rows, width)[:, :columns]


def copied(library: Any, inputs: list[Reals], output: Reals) -> None:
    """Copy as many bytes, in order."""
    for i, array in enumerate(inputs):
        to = output.ctypes.data + i * array.nbytes
        library.copy(array.ctypes.data, to, array.size)


def transposed(
    library: Any, inputs: list[Reals], output: Reals, high: int, wide: int, across: int
) -> None:
    """Both, below each other."""
    for i, array in enumerate(inputs):
        part = output[i * COLUMNS :]
        strides = (array.strides[0] // 4, output.strides[0] // 4)
        places = (array.ctypes.data, part.ctypes.data)
        library.transpose(*places, ROWS, COLUMNS, *strides, high, wide, across)


def tuned(trials: int) -> Call:
    """Results of tuning, on arrays that stay where they are."""
    row = Row("Concat-memory", "concat_transpose", (ROWS, COLUMNS), LARGE, 0)
    result = autotune.tune(program_of(row), target=detect_cpu().with_cores(1), trials=trials)
    call = result.build()
    inputs = [padded(ROWS, COLUMNS, 0) for _ in range(2)]
    output = padded(2 * COLUMNS, ROWS, 0)
    return partial(call, *inputs, out=[output])


def timed(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Seconds of the fastest call of each, in turns: other programs only slow them down."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


if __name__ == "__main__":
    sys.exit(main())

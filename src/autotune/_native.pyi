"""Types of the native module; the packages that wrap it document it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def fma_instruction_set() -> str: ...
def fma_rate(seconds: float) -> float: ...
def read_bandwidth(bytes: int, seconds: float) -> float: ...
def peak_instruction_set(dtype: str) -> str: ...
def peak_rate(dtype: str, threads: int, seconds: float) -> float: ...
def stream_bandwidth(pattern: str, bytes: int, threads: int, seconds: float) -> float: ...
def neighbour_rates(cpu: int, other: int, seconds: float) -> tuple[float, float]: ...
def repeat_times(repeats: int, work: int) -> list[float]: ...
def simd_level() -> str: ...
def sample_native_call(
    address: int, arguments: list[int], number: int, samples: int
) -> tuple[NDArray[np.float64], int]: ...
def flush_memory(memory: NDArray[np.uint8]) -> None: ...
def stream_memory(memory: NDArray[np.uint8], cpus: list[int], least: int) -> None: ...
def launcher() -> int: ...
def step_runner() -> int: ...

class ThreadPool:
    def __init__(self, threads: int) -> None: ...
    @property
    def address(self) -> int: ...

class TapeProgram:
    def __init__(
        self,
        inputs: int,
        constants: NDArray[np.int64],
        operations: NDArray[np.uint8],
        operands: NDArray[np.int32],
        outputs: NDArray[np.int32],
        simd: str = "best",
    ) -> None: ...
    def evaluate(self, matrix: NDArray[np.int64], threads: int = 1) -> NDArray[np.int64]: ...
    @property
    def inputs(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def simd(self) -> str: ...

class PsaGpu:
    def __init__(self, arithmetic: str, gpu: list[float], simd: str = "best") -> None: ...
    def score(
        self,
        program: TapeProgram,
        matrix: NDArray[np.int64],
        maxima: list[float],
        threads: int = 1,
    ) -> NDArray[np.float64]: ...
    def score_symbols(
        self, symbols: NDArray[np.float64], threads: int = 1
    ) -> NDArray[np.float64]: ...

class RelaxedProgram:
    def __init__(
        self,
        inputs: int,
        constants: NDArray[np.float64],
        forms: NDArray[np.uint8],
        operands: NDArray[np.int32],
        outputs: NDArray[np.int32],
        temperature: float,
        epsilon: float,
        half_step: bool,
        simd: str = "best",
    ) -> None: ...
    def values(self, points: NDArray[np.float64], threads: int = 1) -> NDArray[np.float64]: ...
    def vector_jacobian(
        self,
        points: NDArray[np.float64],
        cotangents: NDArray[np.float64],
        threads: int = 1,
    ) -> NDArray[np.float64]: ...
    @property
    def inputs(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def simd(self) -> str: ...

class PamPlan:
    def __init__(
        self,
        program: TapeProgram,
        rows: NDArray[np.int32],
        operations: NDArray[np.float64],
        columns: NDArray[np.int32],
        scales: NDArray[np.float64],
        buffers: NDArray[np.int32],
        loops: NDArray[np.int32],
        accesses: NDArray[np.int32],
        access_operations: NDArray[np.float64],
        operations_squared: bool,
    ) -> None: ...
    def evaluate(
        self, matrix: NDArray[np.int64], threads: int = 1
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...
    @property
    def inputs(self) -> int: ...
    @property
    def rows(self) -> int: ...

def ordered_factorizations(
    total: int, domains: Sequence[Sequence[int] | None], limit: int
) -> NDArray[np.int64]: ...
def philox4x32(counter: Sequence[int], key: Sequence[int]) -> list[int]: ...

class FeasibleSet:
    def __init__(
        self,
        width: int,
        groups: Sequence[tuple[Sequence[int], NDArray[np.int64], NDArray[np.int64]]],
        plans: Sequence[
            tuple[TapeProgram | None, int, Sequence[tuple[Sequence[int], Sequence[int]]]]
        ],
        limit: int,
    ) -> None: ...
    @property
    def count(self) -> tuple[int, int]: ...
    @property
    def edges(self) -> int: ...
    @property
    def group_rows(self) -> list[int]: ...
    def list(self, first: tuple[int, int], count: int) -> NDArray[np.int64]: ...
    def uniform(
        self, count: int, seed: int, first: int = 0, threads: int = 1
    ) -> NDArray[np.int64]: ...
    def stratified(
        self, count: int, seed: int, first: int = 0, threads: int = 1
    ) -> NDArray[np.int64]: ...
    def neighbours(
        self, rows: NDArray[np.int64], seed: int, first: int = 0, threads: int = 1
    ) -> NDArray[np.int64]: ...
    def crossover(
        self,
        mothers: NDArray[np.int64],
        fathers: NDArray[np.int64],
        seed: int,
        first: int = 0,
        threads: int = 1,
    ) -> NDArray[np.int64]: ...
    def nearest(self, rows: NDArray[np.int64], threads: int = 1) -> NDArray[np.int64]: ...
    def values(self, column: int) -> Sequence[int]: ...
    def contains(self, rows: NDArray[np.int64], threads: int = 1) -> NDArray[np.bool_]: ...
    def restricted(
        self, columns: Sequence[int], values: Sequence[Sequence[int]]
    ) -> FeasibleSet: ...

class CpuStatement:
    def __init__(
        self,
        extents: NDArray[np.int32],
        parallel: NDArray[np.uint8],
        remains: NDArray[np.uint8],
        reduces: NDArray[np.uint8],
        vector: int,
        declared: bool,
        work: float,
        calls: float,
        body: int,
        lanes: float,
        narrow: float,
        regions: NDArray[np.int32],
        rows: NDArray[np.int32],
        lines: NDArray[np.int32],
        apart: NDArray[np.int32],
        traffic: NDArray[np.int32],
        element_bytes: NDArray[np.int32],
        meets: NDArray[np.uint8],
        written: int,
        aligned: NDArray[np.int32],
        divided: NDArray[np.int32],
        early: int,
        hides: bool,
    ) -> None: ...

class PsaCpu:
    def __init__(
        self,
        program: TapeProgram,
        statements: list[CpuStatement],
        program_bytes: float,
        nests: float,
        machine: NDArray[np.float64],
    ) -> None: ...
    def cycles(self, matrix: NDArray[np.int64], threads: int = 1) -> NDArray[np.float64]: ...

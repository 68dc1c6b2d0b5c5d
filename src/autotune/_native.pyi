"""Types of the native module; the packages that wrap it document it."""

import numpy as np
from numpy.typing import NDArray

def fma_instruction_set() -> str: ...
def fma_rate(seconds: float) -> float: ...
def read_bandwidth(bytes: int, seconds: float) -> float: ...
def repeat_times(repeats: int, work: int) -> list[float]: ...
def simd_level() -> str: ...

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

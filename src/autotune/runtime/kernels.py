"""The kernels of a program, loaded on a device, and launching them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from ctypes import c_uint64
from typing import Any

from attrs import frozen

from autotune.backends import CudaProgram, TensorMap
from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.targets import CudaDriver

__all__ = ["LoadedKernels", "Parameters"]

Parameters = Sequence[Sequence[Any]]
"""Arguments of the launches of a program, in order."""


@frozen(eq=False)
class LoadedKernels:
    """Kernels in the current context.

    Attributes:
        driver: The driver.
        program: What they are of.
        module: The machine code, loaded.
        functions: The kernels by name.
    """

    driver: CudaDriver
    program: CudaProgram
    module: int
    functions: Mapping[str, int]

    @staticmethod
    def load(driver: CudaDriver, program: CudaProgram, known: Collection[str]) -> LoadedKernels:
        """Load the kernels of a program.

        Args:
            driver: The driver; a context is current.
            program: The program.
            known: Names of the arrays that it will be given, intermediates included.

        Raises:
            CudaError: the device refuses the machine code.
            InvalidValueError: a launch takes an array of another name.
        """
        for launch in program.launches:
            for name in (*launch.arguments, *(it.buffer for it in launch.maps)):
                if name not in known:
                    raise InvalidValueError(
                        f"kernel {launch.kernel!r} takes {name!r}; known: {sorted(known)}"
                    )
        module = driver.load_module(program.cubin)
        try:
            functions = {}
            for launch in program.launches:
                functions[launch.kernel] = function = driver.function(module, launch.kernel)
                driver.allow_shared_memory(function, launch.shared_bytes)
        except Exception:
            driver.unload_module(module)
            raise
        return LoadedKernels(driver, program, module, functions)

    def parameters(self, pointers: Mapping[str, int]) -> Parameters:
        """Parameters of the launches for arrays at these addresses, by name.

        Raises:
            CudaError: an array does not begin where the copy engine reads it.
        """
        return [
            [
                *(c_uint64(pointers[name]) for name in launch.arguments),
                *(self._described(known, pointers[known.buffer]) for known in launch.maps),
            ]
            for launch in self.program.launches
        ]

    def _described(self, known: TensorMap, pointer: int) -> Any:
        size = element_type(known.dtype).bytes
        return self.driver.tensor_map(pointer, known.dtype, known.shape, known.box, size)

    def launch(self, parameters: Parameters, stream: int) -> None:
        """Launch every kernel, in order."""
        for launch, arguments in zip(self.program.launches, parameters, strict=True):
            self.driver.launch(
                self.functions[launch.kernel],
                *(launch.grid, launch.block, launch.shared_bytes, stream, arguments),
            )

    def unload(self) -> None:
        """Unload the machine code."""
        self.driver.unload_module(self.module)

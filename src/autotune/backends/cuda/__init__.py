"""Kernels for CUDA devices, printed from loop nests."""

from autotune.backends.cuda.backend import CudaBackend

__all__ = ["CudaBackend"]

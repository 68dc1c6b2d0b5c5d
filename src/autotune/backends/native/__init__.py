"""The built-in backend for CPUs: loop nests printed as LLVM IR, compiled by llvmlite."""

from autotune.backends.native.backend import NativeBackend, candidate_of, check_instructions

__all__ = ["NativeBackend", "candidate_of", "check_instructions"]

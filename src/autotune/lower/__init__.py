"""A candidate's program, printed from its loop nest."""

from autotune.lower.c import CEmitter, c_type
from autotune.lower.emitter import Emitter, Value
from autotune.lower.llvm_ir import LLVMEmitter
from autotune.lower.places import Place, PlaceKind
from autotune.lower.walk import Program, print_candidate

__all__ = [
    "CEmitter",
    "Emitter",
    "LLVMEmitter",
    "Place",
    "PlaceKind",
    "Program",
    "Value",
    "c_type",
    "print_candidate",
]

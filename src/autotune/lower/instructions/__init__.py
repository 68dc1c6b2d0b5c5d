"""Instructions that multiply small tensors, as calls that printers can say."""

from autotune.lower.instructions.call import Call, call_of
from autotune.lower.instructions.products import (
    DotProduct,
    Instruction,
    TileProduct,
    configured,
    instruction_of,
)

__all__ = [
    "Call",
    "DotProduct",
    "Instruction",
    "TileProduct",
    "call_of",
    "configured",
    "instruction_of",
]

"""Instructions that multiply small tensors, as calls that printers can say."""

from autotune.lower.instructions.call import Call, call_of
from autotune.lower.instructions.dot_products import DotProduct
from autotune.lower.instructions.instruction import Instruction, instruction_of
from autotune.lower.instructions.tile_products import TileProduct, configured

__all__ = [
    "Call",
    "DotProduct",
    "Instruction",
    "TileProduct",
    "call_of",
    "configured",
    "instruction_of",
]

"""What processors do to vectors by single instructions, where not all of them do."""

from __future__ import annotations

from attrs import frozen

__all__ = ["BASIC", "VectorInstructions"]


@frozen
class VectorInstructions:
    """Instructions for vectors of one target.

    Attributes:
        least_masked_bits: Bits of the narrowest elements of which vectors are read and written
            under masks; without any masks it is more than any element has.
        scaled_lanes: Lanes of the vectors of float32 that are multiplied by powers of two.
    """

    least_masked_bits: int = 8
    scaled_lanes: frozenset[int] = frozenset()


BASIC = VectorInstructions()
"""Those that there always are."""

"""Prime factors of whole numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["multiplicities", "prime_factors"]

Whole = NDArray[np.int64]


def prime_factors(number: int) -> dict[int, int]:
    """Multiplicity of every prime of a positive number, ascending."""
    found: dict[int, int] = {}
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found[divisor] = found.get(divisor, 0) + 1
            number //= divisor
        divisor += 1
    if number > 1:
        found[number] = found.get(number, 0) + 1
    return found


def multiplicities(numbers: Whole, primes: Whole) -> Whole:
    """Count how often primes divide positive numbers, with broadcasting; 0 for "prime" 1."""
    numbers, primes = np.broadcast_arrays(numbers, primes)
    found = np.zeros(numbers.shape, dtype=np.int64)
    left = numbers.copy()
    divides = (primes > 1) & (left % primes == 0)
    while divides.any():
        found += divides
        left = np.where(divides, left // primes, left)
        divides &= left % primes == 0
    return found

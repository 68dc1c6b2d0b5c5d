from __future__ import annotations

import json

import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.search.strategies import generator_state, restore_generator

BIT_GENERATORS = (
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.MT19937,
    np.random.Philox,
    np.random.SFC64,
)


@pytest.mark.parametrize("kind", BIT_GENERATORS)
def test_every_bit_generator_survives_json(kind: type[np.random.BitGenerator]) -> None:
    one, other = np.random.Generator(kind(1)), np.random.Generator(kind(2))
    one.integers(10, size=7, dtype=np.int32)
    restore_generator(other, json.loads(json.dumps(generator_state(one))))
    np.testing.assert_array_equal(one.integers(1000, size=50), other.integers(1000, size=50))
    np.testing.assert_array_equal(one.random(50), other.random(50))


def test_another_bit_generator_is_refused() -> None:
    state = generator_state(np.random.default_rng(0))
    with pytest.raises(InvalidValueError, match="PCG64, this one is MT19937"):
        restore_generator(np.random.Generator(np.random.MT19937(0)), state)

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from autotune_pruner.networks import Normaliser, PaCMNetwork, Scale, TenSetNetwork, Weights

from autotune.errors import InvalidValueError


def _weights() -> Weights:
    scales = (
        Scale(np.arange(n, dtype=np.float32), np.full(n, 2, dtype=np.float32)) for n in (174, 23)
    )
    return Weights.of(PaCMNetwork(), Normaliser(*scales))


def _assert_same(one: Weights, other: Weights) -> None:
    mine, theirs = one.to_arrays(), other.to_arrays()
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        assert array.dtype == theirs[name].dtype
        np.testing.assert_array_equal(array, theirs[name])


def test_json_and_arrays_hold_everything() -> None:
    weights = _weights()
    _assert_same(Weights.from_json(json.loads(json.dumps(weights.to_json()))), weights)
    _assert_same(Weights.from_arrays(weights.to_arrays()), weights)


def test_a_network_gets_them() -> None:
    weights, network = _weights(), PaCMNetwork()
    weights.apply(network)
    for name, value in network.state_dict().items():
        assert torch.equal(value, torch.from_numpy(weights.arrays[name]))
    with pytest.raises(InvalidValueError, match="do not fit a TenSetNetwork"):
        weights.apply(TenSetNetwork())


def test_without_a_normaliser_they_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="not weights"):
        Weights.from_json({})

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.targets import Cache, Target, preset, preset_names


@pytest.mark.parametrize("name", preset_names())
def test_json_round_trip(name: str) -> None:
    target = preset(name)
    assert Target.from_json(json.loads(json.dumps(target.to_json()))) == target


def test_round_trip_of_a_gpu() -> None:
    target = Target(
        kind="cuda",
        name="gpu",
        multiprocessors=132,
        shared_memory_bytes=228 << 10,
        registers_per_block=65536,
        max_threads_per_block=1024,
        warp_size=32,
        tensor_core_shapes=((16, 8, 16), (16, 8, 8)),
    )
    assert Target.from_json(json.loads(json.dumps(target.to_json()))) == target


def test_lanes() -> None:
    target = preset("skylake-avx512")
    assert [target.lanes(dtype) for dtype in ("float64", "float32", "float16", "int8")] == [
        *(8, 16, 32, 64)
    ]
    with pytest.raises(UnknownNameError, match="Did you mean 'float32'"):
        target.lanes("float3")


def test_fingerprint_is_of_the_machine_and_not_of_its_rates() -> None:
    target = preset("haswell")
    same = evolve(target, name="mine", peak_flops={}, memory_bandwidth=1.0, rates_measured=True)
    assert same.fingerprint == target.fingerprint
    assert target.fingerprint == Target.from_json(target.to_json()).fingerprint
    others = [
        target.with_cores(2),
        evolve(target, processor="broadwell"),
        evolve(target, features=target.features[1:]),
        evolve(target, caches=(Cache(1, 1 << 15, False),)),
        evolve(target, fma_units=1),
    ]
    assert len({target.fingerprint, *(other.fingerprint for other in others)}) == 6
    assert len(target.fingerprint) == 16 and int(target.fingerprint, 16) >= 0


def test_order_of_features_and_caches_does_not_matter() -> None:
    first = Target(
        "cpu", "a", features=("fma", "avx"), caches=(Cache(2, 2, False), Cache(1, 1, False))
    )
    second = Target(
        "cpu", "a", features=("avx", "fma"), caches=(Cache(1, 1, False), Cache(2, 2, False))
    )
    assert first == second and first.fingerprint == second.fingerprint
    assert hash(first) == hash(second)


def test_with_cores() -> None:
    target = preset("zen4-8core")
    half = target.with_cores(4)
    assert (half.cores, half.name) == (4, "zen4-4core")
    assert half.peak_flops["float32"] == target.peak_flops["float32"] / 2
    assert evolve(target, name="mine").with_cores(1).name == "mine"
    with pytest.raises(InvalidValueError, match="cores must be at least 1"):
        target.with_cores(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "cdua"}, "Did you mean 'cuda'"),
        ({"cores": 0}, "cores must be at least 1"),
        ({"cores": 2.5}, "cores must be a whole number"),
        ({"cores": True}, "cores must be a whole number"),
        ({"vector_bytes": 48}, "power of two"),
        ({"features": "avx2"}, "features must be a list of names"),
        ({"features": [1]}, "features must be a list of names"),
        ({"caches": 3}, "expected a list"),
        ({"caches": [3]}, "a cache is a JSON object"),
        ({"caches": [{"level": 1}]}, "a cache needs size_bytes, shared"),
        ({"caches": [{"level": 1, "size_bytes": 1, "shared": 2}]}, "shared must be true or false"),
        ({"caches": [{"size": 1}]}, "unknown field of a cache 'size'"),
        ({"memory_bandwidth": -1}, "memory_bandwidth must be a rate"),
        ({"memory_bandwidth": float("nan")}, "memory_bandwidth must be a rate"),
        ({"peak_flops": [1]}, "peak_flops must map"),
        ({"peak_flops": {"floot32": 1}}, "unknown dtype 'floot32'"),
        ({"peak_flops": {"float32": 0}}, "must be positive"),
        ({"tensor_core_shapes": [[1, 2]]}, r"a tensor-core shape is \(m, n, k\)"),
        ({"name": ""}, "name must be a non-empty string"),
        ({"core": 4}, "unknown field of a target 'core'.*Did you mean 'cores'"),
    ],
)
def test_bad_json_says_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(AutotuneError, match=message):
        Target.from_json({**preset("haswell").to_json(), **change})


def test_json_that_is_no_target() -> None:
    with pytest.raises(InvalidValueError, match="a target is a JSON object"):
        Target.from_json([])  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="a target needs kind, name"):
        Target.from_json({})

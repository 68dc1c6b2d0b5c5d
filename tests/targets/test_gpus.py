from __future__ import annotations

import pytest
from attrs import evolve

from autotune.targets import Target, preset, preset_names
from autotune.targets.resolution import GPUS, SCORING_ONLY

NAMES = [gpu.name for gpu in GPUS]


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_describes_a_whole_gpu(name: str) -> None:
    target = preset(name)
    assert (target.kind, target.name) == ("cuda", name) and name in preset_names()
    assert target.processor.startswith("sm_")
    assert target.warp_size == 32 and target.max_threads_per_block == 1024
    assert target.shared_memory_bytes == 49152 <= target.shared_memory_per_multiprocessor
    assert target.registers_per_block <= target.registers_per_multiprocessor
    assert target.max_threads_per_multiprocessor in (1024, 1536, 2048)
    assert target.max_blocks_per_multiprocessor in (16, 32)
    assert [cache.level for cache in target.caches] == [1, 2]


@pytest.mark.parametrize("name", NAMES)
def test_peaks_are_what_the_units_can_start_per_cycle(name: str) -> None:
    """Multiply-adds per cycle and multiprocessor are powers of two (192 on Kepler)."""
    target = preset(name)
    starts = target.multiprocessors * target.clock * 2
    per_cycle = {dtype: rate / starts for dtype, rate in target.peak_flops.items()}
    expected = {"k80": 192, "titanv": 64, "v100": 64, "t4": 64, "a100": 64, "a100_40": 64}
    assert per_cycle["float32"] == pytest.approx(expected.get(name, 128), rel=2e-3)
    for dtype, units in per_cycle.items():
        multiple = units / per_cycle["float32"]
        known = (1 / 64, 1 / 32, 1 / 6, 1 / 3, 1 / 2, 1, 2, 4)
        assert min(abs(multiple / each - 1) for each in known) < 3e-3, dtype
    for dtype, rate in target.tensor_peak_flops.items():
        assert rate > target.peak_flops.get(dtype, 0.0)


def test_compute_capabilities() -> None:
    capabilities = {name: preset(name).processor for name in NAMES}
    assert capabilities == {
        "k80": "sm_37",
        "titanv": "sm_70",
        "v100": "sm_70",
        "t4": "sm_75",
        "a100": "sm_80",
        "a100_40": "sm_80",
        "orin": "sm_87",
        "h100": "sm_90",
        "h200": "sm_90",
    }
    assert {name for name in NAMES if int(capabilities[name][3:]) < 75} == set(SCORING_ONLY)


def test_fingerprints_tell_gpus_apart() -> None:
    assert len({preset(name).fingerprint for name in NAMES}) == len(NAMES)
    a100 = preset("a100")
    assert evolve(a100, max_threads_per_multiprocessor=1536).fingerprint != a100.fingerprint
    assert evolve(a100, clock=1e9, tensor_peak_flops={}).fingerprint == a100.fingerprint


def test_what_only_gpus_have_leaves_fingerprints_of_cpus_as_they_were() -> None:
    assert preset("haswell").fingerprint == "1db2d8f25dab6658"
    assert Target("cpu", "plain").fingerprint == "77446991f147332e"

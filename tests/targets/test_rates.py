from __future__ import annotations

import pytest
from attrs import evolve

from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.targets import (
    BANDWIDTH_PATTERNS,
    PEAK_DTYPES,
    Target,
    detect_cpu,
    fma_instruction_set,
    measure_bandwidth,
    measure_peak,
    measure_rates,
    peak_instruction_set,
    preset,
    repeat_times,
)


def test_measured_rates_replace_the_estimates() -> None:
    before = detect_cpu()
    after = measure_rates(before, seconds=0.02)
    assert after.rates_measured and after.fingerprint == before.fingerprint
    assert 1e9 < after.peak_flops["float32"] < 1e14
    assert after.peak_flops["float64"] == pytest.approx(after.peak_flops["float32"] / 2)
    assert 1e8 < after.memory_bandwidth < 1e13


def test_rates_without_an_estimate_to_scale() -> None:
    target = evolve(preset("sse2-1core"), peak_flops={})
    assert measure_rates(target, seconds=0.01).peak_flops.keys() == {"float32"}


def test_bad_arguments() -> None:
    with pytest.raises(UnsupportedTarget, match="not on 'cuda'"):
        measure_rates(Target("cuda", "gpu"))
    with pytest.raises(InvalidValueError, match="seconds must be in"):
        measure_rates(preset("sse2-1core"), seconds=0)
    with pytest.raises(InvalidValueError, match="repeats must be"):
        repeat_times(0, 10)


def test_stability_and_instruction_set() -> None:
    assert len(repeat_times(5, 1000)) == 5
    assert fma_instruction_set() in ("avx512f", "fma", "sse2")


def test_peaks_are_those_of_the_instructions() -> None:
    assert peak_instruction_set("float32") == fma_instruction_set()
    features = detect_cpu().features
    for dtype in PEAK_DTYPES:
        if name := peak_instruction_set(dtype):
            assert name in {*features, "sse2"}
            assert measure_peak(dtype, 2, 0.005) > 1e8
        else:
            with pytest.raises(InvalidValueError, match=f"no instruction for {dtype}"):
                measure_peak(dtype, 1, 0.005)


def test_every_pattern_has_a_bandwidth() -> None:
    for pattern in BANDWIDTH_PATTERNS:
        for threads in (1, 3):
            assert 1e8 < measure_bandwidth(pattern, 16 << 10, threads, 0.005) < 1e13


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(InvalidValueError, match="dtype must be .* not float16"):
        peak_instruction_set("float16")
    with pytest.raises(InvalidValueError, match="pattern must be .* not write"):
        measure_bandwidth("write", 16 << 10, 1)
    with pytest.raises(InvalidValueError, match="threads must be from"):
        measure_bandwidth("read", 16 << 10, 0)

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.targets import allows_tf32, detect_cpu, preset, resolve


@pytest.mark.parametrize(
    ("name", "processor", "lanes", "registers"),
    [
        ("sse2", "x86-64", 4, 16),
        ("avx2-4core", "x86-64-v3", 8, 16),
        ("haswell", "haswell", 8, 16),
        ("skylake-avx512", "skylake-avx512", 16, 32),
        ("cascadelake-2core", "cascadelake", 16, 32),
        ("sapphirerapids", "sapphirerapids", 16, 32),
        ("zen4", "znver4", 16, 32),
    ],
)
def test_presets(name: str, processor: str, lanes: int, registers: int) -> None:
    target = preset(name)
    assert (target.kind, target.processor) == ("cpu", processor)
    assert (target.lanes("float32"), target.vector_registers) == (lanes, registers)
    assert target.cores == (2 if name.endswith("2core") else 4)
    assert [cache.level for cache in target.caches] == [1, 2, 3]
    assert target.peak_flops["float32"] == 2 * target.peak_flops["float64"]
    assert target.memory_bandwidth > 0 and not target.rates_measured


def test_tile_registers_multiply_1024_bytes_a_cycle_in_each_core() -> None:
    tiles, dots = preset("sapphirerapids-2core"), preset("icelake-server-2core")
    clock = tiles.peak_flops["float32"] / (2 * 2 * 16 * tiles.cores)
    assert tiles.fma_units == 2
    assert tiles.peak_flops["int8"] == 2 * 1024 * tiles.cores * clock
    assert tiles.peak_flops["bfloat16"] == tiles.peak_flops["int8"] / 2
    assert dots.peak_flops["int8"] == 4 * dots.peak_flops["float32"]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("A100", "a100"), ("h10", "h100"), ("titan-v", "titanv"), ("b200", "h200")],
)
def test_an_unknown_gpu_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(
        UnknownNameError, match=f"Did you mean .*'{nearest}'.*GPUs: a100, a100_40, "
    ):
        resolve(name)


@pytest.mark.parametrize("name", ["cuda:x", "a100-2core"])
def test_a_gpu_has_a_name_and_no_number_of_cores(name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"GPUs: a100, .*v100\."):
        resolve(name)


def test_tf32_is_a_choice_that_the_target_says() -> None:
    plain, rounded = resolve("h100"), resolve("h100-tf32")
    assert not allows_tf32(plain) and allows_tf32(rounded)
    assert rounded.name == "h100-tf32" and rounded.fingerprint != plain.fingerprint
    assert rounded.tensor_peak_flops["float32"] == plain.tensor_peak_flops["float16"] / 2
    with pytest.raises(InvalidValueError, match="'haswell-4core' is no GPU"):
        resolve("haswell-tf32")
    with pytest.raises(UnknownNameError, match="h10"):
        resolve("h10-tf32")


def test_resolve(tmp_path: Path) -> None:
    target = preset("haswell")
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(target.to_json()))
    assert resolve(target) is target
    assert resolve("haswell") == target
    assert resolve(str(path)) == resolve(path) == target
    assert resolve("cpu") == detect_cpu()


@pytest.mark.parametrize("name", ["haswel", "haswell-0core", "haswell-core", "", "-4core"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UnknownNameError, match="unknown target .* available: a100, .*cpu, "):
        resolve(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a JSON file"),
        ("[]", "does not hold a target: a target is a JSON object"),
        ('{"kind": "cpu", "name": "x", "cors": 1}', "Did you mean 'cores'"),
        ("\xff", "is not a JSON file"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidValueError, match=message) as caught:
        resolve(path)
    assert "bad.json" in str(caught.value)


def test_a_file_that_is_not_there_and_a_value_that_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="No such file"):
        resolve(os.path.join(tmp_path, "none"))
    with pytest.raises(AutotuneError, match="not int"):
        resolve(3)  # type: ignore[arg-type]

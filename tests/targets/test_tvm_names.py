from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.targets import detect_cpu, preset, preset_names, resolve
from autotune.targets.resolution import DEFAULT_CORES, GPUS, name_of_tvm_target

GPU_NAMES = [gpu.name for gpu in GPUS]
CPU_NAMES = sorted(set(preset_names()) - set(GPU_NAMES))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cuda --model=a100", "a100"),
        ("cuda -model=a100_40 -arch=sm_80", "a100_40"),
        ("cuda -model nvidia/nvidia-h100", "h100"),
        ("nvidia/nvidia-a100", "a100"),
        ("nvidia/tesla-k80", "k80"),
        ("nvidia/nvidia-titan-v", "titanv"),
        ("nvidia/jetson-agx-orin-64gb", "orin"),
        ("llvm -mcpu=core-avx2", f"haswell-{DEFAULT_CORES}core"),
        ("llvm --device=cpu -mcpu=cascadelake", f"cascadelake-{DEFAULT_CORES}core"),
        ("llvm -mcpu=skylake-avx512 -num-cores=16", "skylake-avx512-16core"),
        ('{"kind": "llvm", "mcpu": "cascadelake", "num-cores": 2}', "cascadelake-2core"),
    ],
)
def test_targets_as_tvm_writes_them(text: str, name: str) -> None:
    assert resolve(text) == preset(name)


def test_this_machine() -> None:
    assert resolve("llvm") == resolve("llvm -mcpu=native") == detect_cpu()
    assert name_of_tvm_target("cuda -model=unknown") == "cuda"


@given(
    st.sampled_from(CPU_NAMES),
    st.integers(1, 256),
    st.sampled_from(["-", "--"]),
    st.sampled_from(["=", " "]),
)
def test_a_text_and_its_json_form_mean_the_same(
    name: str, cores: int, dash: str, equals: str
) -> None:
    text = f"llvm {dash}num-cores{equals}{cores} {dash}mcpu{equals}{name}"
    form = json.dumps({"kind": "llvm", "mcpu": name, "num-cores": cores})
    assert resolve(text) == resolve(form) == preset(f"{name}-{cores}core")


@pytest.mark.parametrize("name", [*GPU_NAMES, *CPU_NAMES, "cuda", "cpu", "mine.json", "a/b.json"])
def test_names_of_ours_are_no_names_of_tvms(name: str) -> None:
    assert name_of_tvm_target(name) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cuda -model=a100 -arch=sm_90", "a100 is sm_80, not sm_90"),
        ("cuda -arch=sm_80", "does not tell which GPU it is; .* or one of a100, a100_40"),
        ("cuda -arch=sm_77", "does not tell which GPU it is; .* GPUs: a100,"),
        ("cuda -libs=cublas", "'libs' is not read; allowed: model, arch"),
        ("llvm -mattr=+avx2", "'mattr' is not read; allowed: mcpu, num-cores, device"),
        ("llvm -num-cores=4", "chosen by threads .--threads 4"),
        ("llvm -mcpu=znver4 -num-cores=x", "num-cores must be 1 to 9999, not 'x'"),
        ("llvm -device=arm_cpu -mcpu=haswell", "its device can only be cpu"),
        ("llvm -mcpu", "'mcpu' is no -name=value"),
        ("llvm -mcpu=haswell avx", "'avx' is no -name=value"),
        ("{x", "is not JSON"),
        ('{"mcpu": "haswell"}', "lacks its kind"),
    ],
)
def test_what_is_not_read_is_named(text: str, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        resolve(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rocm -model=x", "unknown kind of target 'rocm'; available: cuda, llvm"),
        ("cuda -model=h10", "unknown model of GPU 'h10'; .* Did you mean 'h100'"),
        ("llvm -mcpu=haswel", "unknown target 'haswel'; .* Did you mean 'haswell'"),
        ("cuda a100", "unknown target 'cuda a100'"),
    ],
)
def test_unknown_names_come_with_the_nearest(text: str, words: str) -> None:
    with pytest.raises(UnknownNameError, match=words):
        resolve(text)


@given(st.text(st.sampled_from('llvmcuda -={}":m1'), max_size=20))
def test_any_text_is_a_name_or_refused(text: str) -> None:
    try:
        name = name_of_tvm_target(text)
    except AutotuneError:
        return
    assert name is None or name

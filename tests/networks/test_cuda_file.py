"""Files of networks for CUDA devices: what was written is read, all else is one error."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.backends import CudaProgram, DeviceBuffer, KernelLaunch
from autotune.errors import InvalidValueError
from autotune.networks import NetworkTensor
from autotune.networks.cuda_file import cuda_network, open_cuda_network
from autotune.networks.cuda_plan import DeviceCallPlan, DevicePlan
from autotune.targets import preset

LAUNCH = KernelLaunch("f_kernel", (2, 1, 1), (32, 1, 1), 0, ("A", "B", "S"))
PLAN = DevicePlan(
    {"f": CudaProgram(b"\x7fELF code", (LAUNCH,), (DeviceBuffer("S", 64, True),))},
    [DeviceCallPlan("f", {"A": "w", "B": "v"})],
    {"x": 8, "v": 16},
    {"w": np.arange(4, dtype=np.float32)},
    [NetworkTensor("image", (2,), "float32")],
    ["x"],
    [NetworkTensor("output", (2, 2), "float32")],
    ["v"],
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "network.cuda"
    cuda_network(PLAN, preset("h100")).save(path)
    return path


def test_what_was_written_is_read(path: Path) -> None:
    plan = open_cuda_network(path).plan
    assert plan.programs == PLAN.programs
    assert plan.calls == PLAN.calls
    assert (plan.sizes, plan.input_values, plan.output_values) == ({"x": 8, "v": 16}, ["x"], ["v"])
    assert (plan.inputs, plan.outputs) == (PLAN.inputs, PLAN.outputs)
    np.testing.assert_array_equal(plan.constants["w"].view(np.float32), np.arange(4))


def changed(path: Path, change: Any) -> Path:
    """The file with another description."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    data = json.loads(contents["network.json"])
    change(data)
    contents["network.json"] = json.dumps(data).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data.update(version=2), "of version 2, and not 'autotune.cuda_network'"),
        (lambda data: data.update(schema="other"), "it is 'other' of version 1"),
        (lambda data: data.pop("calls"), "calls"),
        (lambda data: data["sizes"].update(v=-1), "-1 is no size"),
        (lambda data: data["sizes"].update(v=8), "tensor 'output' is larger than its value"),
        (lambda data: data["calls"][0].update(task="g"), "calls 'g', which is no program"),
        (lambda data: data["calls"][0]["arguments"].update(A="z"), "the value 'z', which nothing"),
        (lambda data: data["constants"].update(w=3), "constant 'w' has 16 bytes, and not 3"),
        (lambda data: data["inputs"][0].update(dtype="nonsense"), "nonsense"),
        (lambda data: data["programs"]["f"].update(cubin="%"), "no program of CUDA kernels"),
        (lambda data: data.update(target=preset("zen4").to_json()), "for a target of kind 'cpu'"),
    ],
)
def test_other_files_are_refused_in_one_line(path: Path, change: Any, why: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        open_cuda_network(changed(path, change))
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nonsense", None])
def test_files_that_are_no_archive_are_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "network.cuda"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidValueError, match="no network for a CUDA device that can be read"):
        open_cuda_network(path)

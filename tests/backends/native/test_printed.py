"""Printed programs that are kept: what is found is what would be printed, for no other request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from autotune_npu.rule import NpuRule

from autotune.backends import BuildRequest, LoweredProgram
from autotune.backends.native import NativeBackend, printed
from autotune.backends.native.machine_code import VARIABLE
from autotune.backends.native.printed import printed_program
from autotune.ir.workloads import Workload, conv2d, gemm
from autotune.networks.graph_program import draft_candidate
from autotune.spaces import SketchSpace
from autotune.targets import preset

TARGET = preset("avx512").with_cores(1)
GEMM = gemm(m=24, n=32, k=16)


@pytest.fixture
def lowered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[BuildRequest]:
    """Collect the printed programs, while the cache is in a folder of the test's own."""
    requests: list[BuildRequest] = []
    lower = NativeBackend.lower

    def noted(backend: NativeBackend, request: BuildRequest) -> LoweredProgram:
        requests.append(request)
        return lower(backend, request)

    monkeypatch.setattr(NativeBackend, "lower", noted)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "objects"))
    return requests


def request_of(workload: Workload) -> BuildRequest:
    return BuildRequest(workload, None, draft_candidate(workload, TARGET), TARGET, 1)


@pytest.mark.parametrize(
    "workload", [GEMM, GEMM.with_constants("B"), conv2d(h=9, w=9, ci=4, co=8, pad=1, relu=1)]
)
def test_what_is_found_is_what_was_printed(
    lowered: list[BuildRequest], workload: Workload
) -> None:
    request = request_of(workload)
    made = printed_program(request)
    assert printed_program(request) == made
    assert len(lowered) == 1
    assert str(NativeBackend().lower(request).program.text) == made.text


def test_another_request_finds_nothing(
    lowered: list[BuildRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(GEMM)
    others = [
        evolve(request, candidate=None),
        evolve(request, target=evolve(TARGET, vector_bytes=32)),
        evolve(request, target=evolve(TARGET, features=TARGET.features[1:])),
        request_of(GEMM.renamed(GEMM.names)),
        request_of(gemm(m=24, n=32, k=17)),
    ]
    for number, other in enumerate([request, *others], 1):
        printed_program(other)
        assert len(lowered) == number
    # As after a change of any module that derives or prints.
    monkeypatch.setattr(printed, "_printers", lambda: "others")
    printed_program(request)
    assert lowered[-1] is request and len(lowered) == len(others) + 2


def test_what_a_plugin_decides_is_not_kept(lowered: list[BuildRequest]) -> None:
    space = SketchSpace(GEMM, TARGET, NativeBackend().limits(TARGET), [NpuRule()])
    (candidate,) = space.sample(1, np.random.default_rng(0))
    for _ in range(2):
        printed_program(BuildRequest(GEMM, None, candidate, TARGET, 1))
    assert len(lowered) == 2


def test_a_damaged_file_is_printed_again(lowered: list[BuildRequest], tmp_path: Path) -> None:
    made = printed_program(request_of(GEMM))
    (kept,) = (tmp_path / "objects").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])
    assert printed_program(request_of(GEMM)) == made
    assert len(lowered) == 2

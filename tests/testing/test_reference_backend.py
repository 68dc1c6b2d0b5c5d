from __future__ import annotations

import json

import numpy as np
import pytest

from autotune.backends import Backend, BuildFailed, BuildRequest, InvalidSchedule, bind_copies
from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.workloads import Workload, gemm, random_inputs, reference_outputs
from autotune.measure.validation import expectations, mismatch
from autotune.sketches import Candidate, Ordinal, Sketch
from autotune.targets import Target
from autotune.testing.backend_suite import BackendSuite
from autotune.testing.reference_backend import (
    SCRIPT_VARIABLE,
    ReferenceBackend,
    ReferenceBackendWithDefault,
    ReferenceProgram,
    virtual_latency,
)

ROWS = 12


def make_candidates(workload: Workload, count: int = 4) -> list[Candidate]:
    values = tuple(range(1, count + 1))
    sketch = Sketch("toy", workload, (Ordinal("tile", values),), (), ())
    return [Candidate(sketch, (value,)) for value in values]


@pytest.fixture
def workload() -> Workload:
    return gemm(m=ROWS, n=4, k=4)


class TestReferenceBackend(BackendSuite):
    heavy_modules = ("tvm", "torch", "lightgbm")
    packs_ahead = False

    @pytest.fixture
    def backend(self) -> Backend:
        return ReferenceBackendWithDefault()

    @pytest.fixture
    def candidates(self, workload: Workload) -> list[Candidate]:
        return make_candidates(workload)

    @pytest.fixture
    def program(self) -> str | None:
        return json.dumps({"faults": [{"fault": "invalid", "where": {"tile": 9}}]})

    @pytest.fixture
    def invalid_candidate(self, workload: Workload) -> Candidate:
        return make_candidates(workload, 9)[8]


def request(
    workload: Workload, candidate: Candidate | None, script: object = None
) -> BuildRequest:
    program = None if script is None else json.dumps(script)
    return BuildRequest(workload, program, candidate, Target("cpu", "test"), 1)


def test_latency_depends_on_values_and_seed_only(workload: Workload) -> None:
    candidates = make_candidates(workload, 20)
    latencies = [virtual_latency(workload, candidate) for candidate in candidates]
    assert latencies == [virtual_latency(workload, candidate) for candidate in candidates]
    assert len(set(latencies)) == 20
    assert latencies != [virtual_latency(workload, candidate, 1) for candidate in candidates]
    assert max(latencies) < virtual_latency(workload, None)


def test_time_is_virtual(workload: Workload) -> None:
    (candidate, *_) = make_candidates(workload)
    inputs = list(random_inputs(workload, np.random.default_rng(0)).values())
    for seed in (0, 5):
        executable = ReferenceBackend().build(request(workload, candidate, {"seed": seed}))
        call = bind_copies(executable, workload, inputs)
        assert call.time(10**9) == virtual_latency(workload, candidate, seed)


def test_faults_by_digest_values_and_share(workload: Workload) -> None:
    backend = ReferenceBackend()
    first, second, third, _ = make_candidates(workload)
    script = {
        "faults": [
            {"fault": "invalid", "candidate": first.digest},
            {"fault": "build_error", "where": {"tile": 2}},
        ]
    }
    with pytest.raises(InvalidSchedule):
        backend.build(request(workload, first, script))
    with pytest.raises(BuildFailed):
        backend.build(request(workload, second, script))
    backend.build(request(workload, third, script))
    backend.build(request(workload, None, script))
    with pytest.raises(BuildFailed):
        share = {"faults": [{"fault": "build_error", "every": 1}]}
        backend.build(request(workload, third, share))
    with pytest.raises(BuildFailed):
        baseline = {"faults": [{"fault": "build_error", "candidate": "baseline"}]}
        backend.build(request(workload, None, baseline))


def test_wrong_numbers(workload: Workload) -> None:
    (candidate, *_) = make_candidates(workload)
    inputs = random_inputs(workload, np.random.default_rng(0))
    script = {"faults": [{"fault": "wrong", "where": {}}]}
    executable = ReferenceBackend().build(request(workload, candidate, script))
    call = bind_copies(executable, workload, [*inputs.values()])
    call.run()
    expected = expectations(workload, list(reference_outputs(workload, inputs).values()))
    message = mismatch(expected, call.outputs())
    assert message is not None
    assert f"1 of {ROWS * 4} elements are wrong; largest error 1 " in message


def test_the_environment_scripts_too(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    script = {"faults": [{"fault": "invalid", "every": 1}]}
    monkeypatch.setenv(SCRIPT_VARIABLE, json.dumps(script))
    (candidate, *_) = make_candidates(workload)
    with pytest.raises(InvalidSchedule):
        ReferenceBackend().build(request(workload, candidate))
    ReferenceBackend().build(request(workload, candidate, {"seed": 1}))


def test_imports_its_own_programs(workload: Workload) -> None:
    backend = ReferenceBackend()
    program = ReferenceProgram(workload, '{"seed": 3}')
    assert backend.imports(program)
    imported = backend.import_program(program)
    assert imported.workload == workload
    assert imported.program == '{"seed": 3}'


def test_mistakes_in_scripts(workload: Workload) -> None:
    backend = ReferenceBackend()
    with pytest.raises(InvalidValueError, match="not a script"):
        backend.build(BuildRequest(workload, "crash", None, Target("cpu", "test"), 1))
    with pytest.raises(InvalidValueError, match="not a script"):
        backend.build(request(workload, None, {"fault": []}))
    with pytest.raises(UnknownNameError, match="crash"):
        backend.build(request(workload, None, {"faults": [{"fault": "cras"}]}))
    with pytest.raises(UnknownNameError, match="verify"):
        faults = [{"fault": "crash", "phase": "verifi"}]
        backend.build(request(workload, None, {"faults": faults}))

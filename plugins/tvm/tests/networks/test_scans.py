"""Running sums in networks."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.networks.executable import RelaxNetwork
from autotune_tvm.networks.frontend import RelaxFrontend
from relax_networks import network, op, weights

from autotune.networks import LoadOptions
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target
from autotune.testing.programs import sample_candidates


@pytest.mark.parametrize("axis", [0, 1])
def test_a_network_runs_a_scan_as_it_was_tuned(axis: int, target: Target) -> None:
    module = network(
        [((24, 32), "float32")],
        lambda emit, x: emit(op.nn.relu(emit(op.cumsum(emit(op.nn.relu(x)), axis)))),
    )
    program = RelaxFrontend().load(module, None, LoadOptions(target, 1))
    (task,) = (it for it in program.tasks if "cumsum" in it.name)
    backend = TVMBackend()
    imported = backend.import_program(task.program)
    candidate = sample_candidates(backend, imported.workload, target)[0]
    key = MeasureKey(target.fingerprint, "tvm", "1", "1", 1, "warm-3")
    outcome, json = Outcome("ok", 1e-3, (1e-3,)), target.to_json()
    text = imported.program
    record = Record("run", 0, candidate, key, json, "sketch-1", outcome, 0.0, program=text)
    compiled = program.build({task.name: record}, target, 1)
    assert isinstance(compiled, RelaxNetwork)
    x = weights(24, 32)
    wanted = np.maximum(np.cumsum(np.maximum(x, 0), axis), 0)
    np.testing.assert_allclose(compiled(x)[0], wanted, rtol=1e-5)

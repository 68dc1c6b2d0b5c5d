"""Running sums in the pipeline of Relax."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from autotune_tvm.networks.apply_records import autotune_pipeline, with_passes
from relax_networks import network, op, run, weights
from relax_records import cuts, stored

from autotune.targets import Target


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("backend", ["native", "tvm"])
def test_a_scan_runs_as_it_was_tuned(
    axis: int, backend: str, target: Target, tmp_path: Path
) -> None:
    machine = target.with_cores(1)
    module = network(
        [((24, 32), "float32")],
        lambda emit, x: emit(op.nn.relu(emit(op.cumsum(emit(op.nn.relu(x)), axis)))),
    )
    cut = cuts(with_passes(module, machine), backend, machine)
    (scan,) = (it for it in cut if "scan" in it.name)
    path = stored(tmp_path / "records.db", [scan.record()])
    piped = autotune_pipeline(path, machine)(module)
    names = {str(variable.name_hint) for variable in piped.get_global_vars()}
    if backend == "native":
        assert scan.name not in names
    else:
        assert piped[scan.name].attrs["tirx.is_scheduled"]
    x = weights(24, 32)
    wanted = np.maximum(np.cumsum(np.maximum(x, 0), axis), 0)
    np.testing.assert_allclose(run(piped, x)[0], wanted, rtol=1e-5)

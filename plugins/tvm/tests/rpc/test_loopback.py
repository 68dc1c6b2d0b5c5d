"""Tuning on TVM's own servers, through its own tracker, on the loopback interface."""

from __future__ import annotations

from pathlib import Path

import autotune_tvm
import pytest
from rpc_servers import RPCFleet

import autotune
from autotune.ir.workloads import gemm
from autotune.store.sqlite import open_database


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tvm", "native"])
def test_a_program_is_tuned_on_servers(backend: str, tmp_path: Path) -> None:
    """Constants are packed there, once."""
    database = str(tmp_path / "records.db")
    with RPCFleet(tmp_path, servers=1) as fleet:
        result = autotune.tune(
            gemm(m=128, n=128, k=128).with_constants("B"),
            backend=backend,
            trials=6,
            threads=1,
            database=database,
            parts={"runner": ("rpc", fleet.options()), "cost_model": "random"},
        )
        # The session is over: the server waits for the next client.
        fleet.await_free(1)
    assert result.best is not None
    with open_database(database, read_only=True) as opened:
        records = list(opened.records())
    outcomes = [record.outcome for record in records]
    assert {record.key.backend for record in records} == {backend}
    assert len(outcomes) >= 6 and all(outcome.ok for outcome in outcomes)
    # Records of other machines than this one are told apart.
    assert all("+machine-" in record.key.protocol for record in records)
    assert all(len(outcome.samples) >= 1 and outcome.latency > 0 for outcome in outcomes)
    log = (tmp_path / "server.log").read_text()
    assert log.count("load_module") > 6
    assert "0.0.0.0" not in log


def test_nobody_listens_elsewhere_by_default() -> None:
    """No code of ours starts a tracker or a server, so that none listens by mistake."""
    source = Path(autotune_tvm.__file__).parent
    text = "".join(path.read_text() for path in source.rglob("*.py"))
    assert "exec.rpc_server" not in text and "exec.rpc_tracker" not in text
    assert "rpc.Server(" not in text and "0.0.0.0" not in text


@pytest.mark.parametrize("name", ["rpc"])
def test_the_runner_is_registered(name: str) -> None:
    from autotune.plugins.manager import manager

    assert name in manager().names("runner")

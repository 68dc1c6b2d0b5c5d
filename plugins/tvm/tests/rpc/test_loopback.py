"""Tuning on TVM's own servers, through its own tracker, on the loopback interface."""

from __future__ import annotations

from pathlib import Path

import autotune_tvm
import pytest
from rpc_servers import RPCFleet

import autotune
from autotune.ir.workloads import gemm
from autotune.plugins.manager import manager
from autotune.store.sqlite import open_database


@pytest.mark.slow
def test_programs_are_tuned_on_a_server(tmp_path: Path) -> None:
    """Constants are packed there, once."""
    with RPCFleet(tmp_path, servers=1) as fleet:
        for backend in ("tvm", "native"):
            check_tuned(fleet, backend, str(tmp_path / f"{backend}.db"))
            # The session is over: the server waits for the next client.
            fleet.await_free(1)
    log = (tmp_path / "server.log").read_text()
    assert log.count("load_module") > 12
    assert "0.0.0.0" not in log


def check_tuned(fleet: RPCFleet, backend: str, database: str) -> None:
    result = autotune.tune(
        gemm(m=128, n=128, k=128).with_constants("B"),
        backend=backend,
        trials=6,
        threads=1,
        database=database,
        parts={"runner": ("rpc", fleet.options()), "cost_model": "random"},
    )
    assert result.best is not None
    with open_database(database, read_only=True) as opened:
        records = list(opened.records())
    outcomes = [record.outcome for record in records]
    assert {record.key.backend for record in records} == {backend}
    assert len(outcomes) >= 6
    assert all(outcome.ok for outcome in outcomes), [it.message for it in outcomes]
    # Records of other machines than this one are told apart.
    assert all("+machine-" in record.key.protocol for record in records)
    assert all(len(outcome.samples) >= 1 and outcome.latency > 0 for outcome in outcomes)


def test_nobody_listens_elsewhere_by_default() -> None:
    """No code of ours starts a tracker or a server, so that none listens by mistake."""
    source = Path(autotune_tvm.__file__).parent
    text = "".join(path.read_text() for path in source.rglob("*.py"))
    assert "exec.rpc_server" not in text and "exec.rpc_tracker" not in text
    assert "rpc.Server(" not in text and "0.0.0.0" not in text


def test_the_runner_is_registered() -> None:
    assert "rpc" in manager().names("runner")

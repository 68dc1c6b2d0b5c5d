"""Several backends on the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rival_backends import QUICK, SLOW


@pytest.mark.slow
def test_the_command_line_shows_the_winner_and_the_others(cli: Any) -> None:
    parts = ("--cost-model", "random", "--pruning-model", "none", "--threads", "1")
    done = cli(
        *("tune", "gemm", "--shape", "m=8,n=8,k=8", *parts, "--backend", f"{SLOW},{QUICK}"),
        *("--trials", "8", "--round-size", "4", "--json", "out.json"),
    )
    assert done.status == 0, done.stderr
    assert "tuned (QuickBackend)" in done.stdout and "tuned (SlowBackend)" in done.stdout
    assert "beats SlowBackend 1.33x (1.33x to 1.33x)" in done.stdout
    assert "gemm: QuickBackend beats SlowBackend 1.33x" in done.stderr
    report = json.loads((cli.folder / "out.json").read_text())
    assert report["backend"]["name"] == QUICK
    assert [rival["result"]["backend"]["name"] for rival in report["rivals"]] == [SLOW]
    best = json.loads(cli("best", "--json", "-").stdout)
    assert [record["key"]["backend"] for record in best] == [QUICK]
    slow = json.loads(cli("best", "--backend", SLOW, "--json", "-").stdout)
    assert [record["key"]["backend"] for record in slow] == [SLOW]

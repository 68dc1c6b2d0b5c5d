from __future__ import annotations

import json
from typing import Any

from backend_with_less import TRUE_BYTES


def test_a_backend_that_declares_too_much_is_found_out(cli: Any) -> None:
    backend = ("--backend", "backend_with_less:BackendWithLess")
    shape = ("--shape", "m=32,n=32,k=32")
    # Vectors of 16 numbers: with shorter ones few of the tiles are too large.
    common = ("--strategy", "random", "--threads", "1", "--target", "skylake-avx512")
    done = cli("tune", "gemm", *shape, *backend, *common, "--trials", "60")
    assert done.status == 0, done.stderr
    done = cli("records", "failures", "--json", "-")
    groups = json.loads(done.stdout)
    group = next(it for it in groups if it["sketch"] is None)
    assert (group["workload"], group["phase"]) == ("gemm", "lower")
    (rule,) = group["rules"]
    (condition,) = rule["never"]
    assert condition["variable"] == "4*C.i.2*C.j.2*C.j.3"
    # The smallest that was refused: no more than that is known.
    assert TRUE_BYTES < condition["at_least"] <= 2 * TRUE_BYTES
    assert rule["failures"] == group["failures"] and group["unexplained"] == 0
    shown = cli("records", "failures").stdout
    assert f"never {condition['variable']} >= {condition['at_least']}" in shown
    assert "does not fit the stack" in shown


def test_without_records_or_failures_there_is_nothing_to_say(tuned_cli: Any) -> None:
    done = tuned_cli("records", "failures")
    assert (done.status, done.stdout) == (0, "none of 20 records is of a failure\n")
    assert tuned_cli("records", "failures", "softmax").status == 1

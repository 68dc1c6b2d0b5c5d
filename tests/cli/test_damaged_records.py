"""Commands that meet a damaged database."""

from __future__ import annotations

import json
from typing import Any

import pytest


def damage(cli: Any) -> bytes:
    path = cli.folder / "autotune.db"
    data = bytes(4096) + path.read_bytes()[4096:]
    path.write_bytes(data)
    return bytes(data)


def test_a_run_goes_on_with_what_was_recovered(tuned_cli: Any) -> None:
    data = damage(tuned_cli)
    refused = tuned_cli("best")
    assert refused.status == 2
    assert refused.stderr.count("\n") == 1
    assert "the next command that writes to it moves it aside" in refused.stderr
    assert tuned_cli.files() == {"autotune.db", "out.json"}
    done = tuned_cli.tune("--trials", "30", "--json", "out.json")
    assert done.status == 0, done.stderr
    assert done.stderr.count("was damaged: 20 records, 1 runs and 2 baselines") == 1
    report = json.loads((tuned_cli.folder / "out.json").read_text())
    assert report["trials"] == 30
    (aside,) = (name for name in tuned_cli.files() if ".corrupt-" in name)
    assert aside in done.stderr
    assert (tuned_cli.folder / aside).read_bytes() == data
    assert tuned_cli("best").status == 0
    again = tuned_cli.tune("--trials", "30")
    assert again.status == 0 and "damaged" not in again.stderr


@pytest.mark.slow
def test_who_asks_for_quiet_is_told_too(tuned_cli: Any) -> None:
    damage(tuned_cli)
    done = tuned_cli.tune("--trials", "30", "--progress", "quiet")
    assert done.status == 0, done.stderr
    assert done.stderr.count("\n") == 1
    assert "warning: database" in done.stderr
    assert "was damaged: 20 records, 1 runs and 2 baselines" in done.stderr


@pytest.mark.parametrize("command", ["best", "show"])
def test_a_file_that_is_nothing_at_all(cli: Any, command: str) -> None:
    (cli.folder / "autotune.db").write_bytes(b"notes\n" * 5000)
    for arguments in ((command,), ("tune", "gemm", "--shape", "m=8,n=8,k=8")):
        done = cli(*arguments)
        assert done.status == 2
        assert "another kind" in done.stderr
    assert cli.files() == {"autotune.db"}

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


def test_a_run_goes_on_with_what_was_recovered(cli: Any) -> None:
    assert cli.tune("--trials", "20").status == 0
    data = damage(cli)
    refused = cli("best")
    assert refused.status == 2
    assert refused.stderr.count("\n") == 1
    assert "the next command that writes to it moves it aside" in refused.stderr
    assert cli.files() == {"autotune.db"}
    done = cli.tune("--trials", "30", "--json", "out.json")
    assert done.status == 0, done.stderr
    assert done.stderr.count("was damaged: 20 records, 1 runs and 1 baselines") == 1
    report = json.loads((cli.folder / "out.json").read_text())
    assert report["trials"] == 30
    (aside,) = (name for name in cli.files() if ".corrupt-" in name)
    assert aside in done.stderr
    assert (cli.folder / aside).read_bytes() == data
    assert cli("best").status == 0
    again = cli.tune("--trials", "30")
    assert again.status == 0 and "damaged" not in again.stderr


def test_who_asks_for_quiet_is_told_too(cli: Any) -> None:
    assert cli.tune("--trials", "20").status == 0
    damage(cli)
    done = cli.tune("--trials", "30", "--progress", "quiet")
    assert done.status == 0, done.stderr
    assert done.stderr.count("\n") == 1
    assert "warning: database" in done.stderr
    assert "was damaged: 20 records, 1 runs and 1 baselines" in done.stderr


@pytest.mark.parametrize("command", ["best", "show"])
def test_a_file_that_is_nothing_at_all(cli: Any, command: str) -> None:
    (cli.folder / "autotune.db").write_bytes(b"notes\n" * 5000)
    for arguments in ((command,), ("tune", "gemm", "--shape", "m=8,n=8,k=8")):
        done = cli(*arguments)
        assert done.status == 2
        assert "another kind" in done.stderr
    assert cli.files() == {"autotune.db"}

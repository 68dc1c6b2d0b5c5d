"""Torch's own samples of the operators of core ATen: nothing of them is computed wrong.

They are run in a process of their own, see there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import expecttest  # noqa: F401 - torch's samples need it
import pytest
import torch  # noqa: F401 - so that it is known where this runs

ROOT = Path(__file__).parents[4]


def _run(folder: Path, *options: str) -> dict[str, Any]:
    path = folder / "counts.json"
    command = [sys.executable, "-m", "tests.support.torch_opinfo", "--json", str(path), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _check(verdicts: dict[str, int], least: int) -> None:
    total = sum(count for kind, count in verdicts.items() if kind != "excluded")
    assert total >= least
    assert verdicts["passed"] >= 0.9 * total


@pytest.mark.slow
def test_a_sample_passes_or_is_refused_in_one_line(tmp_path: Path) -> None:
    _check(_run(tmp_path, "--most", "1")["verdicts"], 300)


@pytest.mark.long
def test_the_samples_pass_or_are_refused_in_one_line(tmp_path: Path) -> None:
    _check(_run(tmp_path, "--most", "12")["verdicts"], 2000)


def test_what_is_left_out_is_left_out_by_a_rule(tmp_path: Path) -> None:
    found = _run(tmp_path, "--only", "neg", "--most", "1")
    rules, verdicts = found["rules"], found["verdicts"]
    assert rules["bernoulli"] == rules["nn.functional.dropout"] == "random numbers"
    assert rules["fft.rfft"] == "complex and sparse numbers"
    assert not rules["add"] and not rules["nn.functional.conv2d"]
    assert verdicts["passed"] > 0

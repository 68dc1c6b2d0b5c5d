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

SCRIPT = Path(__file__).parents[4] / "tests/support/torch_opinfo.py"


def _run(folder: Path, *options: str) -> dict[str, Any]:
    path = folder / "counts.json"
    command = [sys.executable, str(SCRIPT), "--json", str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _check(found: dict[str, Any], samples: int, operators: int) -> None:
    """Least numbers of samples that are judged, and of operators of which some pass."""
    verdicts = found["verdicts"]
    total = sum(count for kind, count in verdicts.items() if kind != "excluded")
    assert total >= samples and len(found["operators"]) >= operators
    assert verdicts["passed"] >= 0.9 * total


def test_a_few_pass_or_are_refused_and_others_are_left_out_by_a_rule(tmp_path: Path) -> None:
    found = _run(tmp_path, "--most", "1", "--every", "31")
    _check(found, 12, 12)
    rules = found["rules"]
    assert rules["bernoulli"] == rules["nn.functional.dropout"] == "random numbers"
    assert rules["fft.rfft"] == "complex and sparse numbers"
    assert not rules["add"] and not rules["nn.functional.conv2d"]


@pytest.mark.slow
def test_a_sample_passes_or_is_refused_in_one_line(tmp_path: Path) -> None:
    _check(_run(tmp_path, "--most", "1", "--every", "6"), 60, 60)


@pytest.mark.long
def test_the_samples_pass_or_are_refused_in_one_line(tmp_path: Path) -> None:
    _check(_run(tmp_path, "--most", "12"), 2000, 140)

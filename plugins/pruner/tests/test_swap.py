"""The cost model of ``pruner`` is replaced by installing a distribution, and by its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from toy_parts import REFERENCE_BACKEND, TOY_SPACE

ROOT = Path(__file__).parents[3]
TUNE = [
    *("tune", "gemm", "--shape", "m=64,n=64,k=64", "--trials", "24", "--round-size", "8"),
    *("--backend", REFERENCE_BACKEND, "--space", TOY_SPACE, "--threads", "1"),
    *("--strategy", "pruner", "--strategy-option", "prior=0", "--pruning-model", "none"),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment with a third-party distribution, and the plugin if it is not installed yet."""
    site = tmp_path_factory.mktemp("site")
    folders = [ROOT / "docs" / "examples" / "autotune-nearest"]
    if not any(metadata.distributions(name="autotune-pruner")):
        folders.append(ROOT / "plugins" / "pruner")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(site)]
    subprocess.run([*command, *map(str, folders)], check=True, timeout=300)
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": path}


def autotune(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "autotune", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "continues without" not in done.stderr
    return done.stdout


def tuned(environment: dict[str, str], folder: Path, cost_model: str) -> list[Any]:
    """The best latency after each trial of a run."""
    asked = ["--cost-model", cost_model, "--fresh", "--json", "out.json"]
    autotune(environment, folder, *TUNE, *asked)
    result = json.loads((folder / "out.json").read_text())
    assert result["strategy"] == "pruner" and result["trials"] == 24
    return [best for _, _, best in result["history"]]


@pytest.mark.slow
def test_another_distribution_brings_the_cost_model(
    environment: dict[str, str], tmp_path: Path
) -> None:
    listed = autotune(environment, tmp_path, "plugins")
    for name in ("pruner", "moa-pruner", "nearest"):
        assert name in listed.split()
    swapped = tuned(environment, tmp_path, "nearest")
    # Two rounds are proposed before anything is known: then it matters who ranks.
    assert tuned(environment, tmp_path, "random")[16:] != swapped[16:]

"""``autotune explain``: of records, of configurations in files, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from toy_parts import REFERENCE_BACKEND

from autotune.ir.workloads import gemm
from autotune.spaces import SketchSpace
from autotune.targets import detect_cpu
from autotune.testing.reference_backend import ReferenceBackend


def test_the_fastest_record_is_explained(tuned_cli: Any) -> None:
    done = tuned_cli("explain", "--json", "out.json", "--plot", "slopes.svg", "--limit", "3")
    assert done.status == 0, done.stderr
    assert "By parameter" in done.stdout and "Legal single steps" in done.stdout
    found = json.loads((tuned_cli.folder / "out.json").read_text())
    best = json.loads(tuned_cli("best", "--json", "-").stdout)[0]
    assert found["candidate"]["config"] == best["config"]
    assert {slope["name"] for slope in found["params"]} == set(best["config"])
    assert found["moves"][0]["gain"] >= found["moves"][-1]["gain"]
    assert (tuned_cli.folder / "slopes.svg").read_text().startswith("<svg")
    named = tuned_cli("explain", "--record", f"{best['run_id']}/{best['trial']}")
    assert named.status == 0 and "'analytic' after" in named.stdout
    as_made = tuned_cli("explain", "--cost-model-option", "learn=false")
    assert "'analytic' after 0 outcomes" in as_made.stdout, "it is not to learn from records"


def test_a_configuration_in_a_file(cli: Any) -> None:
    shape = ("gemm", "--shape", "m=16,n=32,k=16", "--backend", REFERENCE_BACKEND)
    names = cli("show", *shape, "--sketch", "nothing").stderr
    sketch = names.partition("available: ")[2].partition(",")[0].partition(".")[0].strip()
    shown = json.loads(cli("show", *shape, "--sketch", sketch, "--json", "-").stdout)
    params = [name for _, name, _ in shown["sketch"]["params"]]
    file = cli.folder / "config.json"

    def explained(**config: Any) -> Any:
        file.write_text(json.dumps(config))
        return cli("explain", *shape, "--config", "config.json")

    wrong = explained(sketch=sketch, config=dict.fromkeys(params, 1))
    assert wrong.status == 2 and "does not satisfy the constraints" in wrong.stderr
    assert "has parameters" in explained(sketch=sketch, config={}).stderr
    assert "unknown sketch 'direkt'" in explained(sketch="direkt", config={}).stderr
    assert "not of the form" in explained(config={}).stderr
    assert "cannot be read" in cli("explain", *shape, "--config", "none.json").stderr


def test_a_feasible_configuration_in_a_file(cli: Any) -> None:
    target, workload = detect_cpu(), gemm(m=16, n=32, k=16)
    space = SketchSpace(workload, target, ReferenceBackend().limits(target))
    (candidate,) = space.sample(1, np.random.default_rng(0))
    asked = {"sketch": candidate.sketch.name, "config": candidate.config}
    (cli.folder / "config.json").write_text(json.dumps(asked))
    shape = ("gemm", "--shape", "m=16,n=32,k=16", "--backend", REFERENCE_BACKEND)
    done = cli("explain", *shape, "--config", "config.json", "--json", "-")
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["candidate"]["config"] == candidate.config
    assert {slope["name"] for slope in found["params"]} == set(candidate.config)


def test_what_cannot_be_explained(tuned_cli: Any) -> None:
    assert tuned_cli("explain", "--database", "none.db").status == 2
    refused = tuned_cli("explain", "--cost-model", "random")
    assert refused.status == 2 and "no gradient to descend along" in refused.stderr
    assert "analytic" in refused.stderr
    refused = tuned_cli("explain", "--load-cost-model", "model.npz")
    assert refused.status == 2 and "not trained beforehand" in refused.stderr
    assert tuned_cli("explain", "softmax").status == 1
    assert "exclude" in tuned_cli("explain", "--record", "a/1", "--config", "c.json").stderr
    assert "--space goes with --config" in tuned_cli("explain", "--space", "sketch").stderr

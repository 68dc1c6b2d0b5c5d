"""Cost models that begin with what a file holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from faulty_models import FAULT_VARIABLE
from toy_parts import REFERENCE_BACKEND, TOY_SPACE, TOY_TREES, toy_trees

import autotune
from autotune.errors import InvalidValueError
from autotune.ir.workloads import gemm
from autotune.models import ModelContext
from autotune.models.cost import ModelFile, TrainingGroup
from autotune.models.host import HostedCostModel, ModelHost, ModelSpec
from autotune.targets import Target
from autotune.testing.toy_space import ToySpace, toy_outcome
from autotune.tuning.events import TrialFinished

MakeHost = Callable[..., ModelHost]


@pytest.fixture
def path(tmp_path: Path, target: Target) -> Path:
    """Trees that were trained on another toy space."""
    candidates = list(ToySpace(32).sample(200, np.random.default_rng(4)))
    told = tuple((candidate, toy_outcome(candidate)) for candidate in candidates)
    model = toy_trees(ModelContext(target=target))
    model.fit([TrainingGroup("toy", told[0][0].sketch.workload.digest, told)])
    file = tmp_path / "trees.npz"
    with file.open("wb") as stream:
        model.save(stream)
    return file


def test_the_model_begins_with_the_file_also_after_a_crash(
    make_host: MakeHost, path: Path, target: Target
) -> None:
    own = toy_trees(ModelContext(target=target))
    own.load(ModelFile.at(path).open())
    model = HostedCostModel(
        make_host(ModelSpec("cost_model", TOY_TREES, {"seed": 0}, ModelFile.at(path)))
    )
    batch = ToySpace(16).sample(40, np.random.default_rng(1))
    assert own.predict(batch).std() > 0
    np.testing.assert_array_equal(model.predict(batch), own.predict(batch))
    told = [(candidate, toy_outcome(candidate)) for candidate in list(batch)[:10]]
    for each in (own, model):
        each.update(told)
    state = model.state()
    again = HostedCostModel(
        make_host(ModelSpec("cost_model", TOY_TREES, {"seed": 0}, ModelFile.at(path)))
    )
    again.load_state(state)
    np.testing.assert_array_equal(again.predict(batch), own.predict(batch))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("random", "cost model 'random' cannot be loaded from a file"),
        ("gbdt", "trees.npz: the cost model was trained on features of version 'toy'"),
    ],
)
def test_what_cannot_load_a_file_refuses_to(
    make_host: MakeHost, path: Path, model: str, message: str
) -> None:
    host = make_host(ModelSpec("cost_model", model, file=ModelFile.at(path)))
    with pytest.raises(InvalidValueError, match=message):
        host.wait_ready()


def test_a_model_that_is_not_to_learn_stays_as_loaded(
    make_host: MakeHost, path: Path, target: Target
) -> None:
    own = toy_trees(ModelContext(target=target))
    own.load(ModelFile.at(path).open())
    arguments = {"seed": 0, "options": {"learn": False}}
    host = make_host(ModelSpec("cost_model", TOY_TREES, arguments, ModelFile.at(path)))
    model = HostedCostModel(host)
    batch = ToySpace(16).sample(40, np.random.default_rng(1))
    told = [(candidate, toy_outcome(candidate)) for candidate in list(batch)[:10]]
    model.update(told)
    np.testing.assert_array_equal(model.predict(batch), own.predict(batch))
    assert model.state() == own.state()
    own.update(told)
    assert (model.predict(batch) != own.predict(batch)).any()


def test_a_model_that_knows_nothing_has_to_learn(make_host: MakeHost) -> None:
    host = make_host(ModelSpec("cost_model", TOY_TREES, {"options": {"learn": False}}))
    with pytest.raises(InvalidValueError, match="not to learn.*--load-cost-model"):
        host.wait_ready()


@pytest.mark.slow
def test_a_file_is_part_of_what_a_run_is(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FAULT_VARIABLE, raising=False)

    def run(load: Path | None, trials: int = 24) -> tuple[autotune.Result, list[str]]:
        events: list[object] = []
        result = autotune.tune(
            gemm(m=16, n=16, k=16),
            backend=REFERENCE_BACKEND,
            parts={"search_space": TOY_SPACE, "cost_model": TOY_TREES, "pruning_model": "none"},
            trials=trials,
            round_size=8,
            threads=1,
            database=tmp_path / "records.db",
            lookahead=0,
            load_cost_model=load,
            warm_start=False,
            listeners=[events.append],
        )
        told = [event for event in events if isinstance(event, TrialFinished)]
        return result, [event.candidate.digest for event in told]

    plain, first = run(None)
    loaded, second = run(path, 16)
    assert loaded.run_id != plain.run_id and not loaded.from_records
    assert second != first[:16]
    more, third = run(path)
    assert more.run_id == loaded.run_id and third[:8] == second[8:]
    assert run(path)[0].from_records
    with autotune.open_database(tmp_path / "records.db") as database:
        found = database.run(loaded.run_id)
    assert found is not None
    assert found.options["cost_model_file"] == ModelFile.at(path).digest
    json.dumps(dict(found.options))
    with pytest.raises(InvalidValueError, match="cannot be read"):
        run(tmp_path / "missing.npz")

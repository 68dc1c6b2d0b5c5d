"""TVM and MLIR compete within one budget, with real compilers and workers."""

from __future__ import annotations

import numpy as np
import pytest
from mlir_modules import product

import autotune
from autotune.backends import ProgramFile
from autotune.store.database import RecordFilter
from autotune.store.sqlite import open_database
from autotune.tuning.events import Event, WarningRaised

pytestmark = [pytest.mark.needs("tvm"), pytest.mark.slow]
PRODUCT = product("product", "public", m=32, n=64, k=48)


@pytest.fixture(scope="module")
def found(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[autotune.Result, list[Event]]:
    """A product in MLIR, tuned with both."""
    folder = tmp_path_factory.mktemp("competition")
    (folder / "product.mlir").write_text(PRODUCT)
    events: list[Event] = []
    result = autotune.tune(
        ProgramFile(folder / "product.mlir", "mlir"),
        backend="tvm,mlir",
        trials=8,
        round_size=4,
        threads=1,
        parts={"cost_model": "random"},
        database=folder / "records.db",
        listeners=[events.append],
    )
    return result, events


def test_each_has_its_share_and_the_winners_are_compared(
    found: tuple[autotune.Result, list[Event]],
) -> None:
    result, _ = found
    (rival,) = result.rivals
    assert {result.backend, rival.result.backend} == {"tvm", "mlir"}
    assert result.trials == rival.result.trials == 4
    assert result.best is not None and rival.result.best is not None
    assert rival.comparison is not None and rival.comparison.rounds > 1
    assert result.task == rival.result.task


def test_only_the_one_that_reads_mlir_replays_on_the_file(
    found: tuple[autotune.Result, list[Event]],
) -> None:
    result, events = found
    programs = {it.backend: it.program for it in (result, result.rivals[0].result)}
    assert programs["tvm"] is None and programs["mlir"] is not None
    messages = [event.message for event in events if isinstance(event, WarningRaised)]
    assert any("backend 'tvm' does not import a" in message for message in messages)


def test_a_record_says_its_backend_and_compiler(
    found: tuple[autotune.Result, list[Event]],
) -> None:
    result, _ = found
    with open_database(result.database, read_only=True) as database:
        for name in ("tvm", "mlir"):
            records = list(database.records(RecordFilter(backend=name)))
            assert len(records) == 4
            assert {record.key.backend for record in records} == {name}
            assert len({record.key.compiler_version for record in records}) == 1
        versions = {record.key.compiler_version for record in database.records()}
    assert len(versions) == 2


def test_both_winners_compute_the_same(found: tuple[autotune.Result, list[Event]]) -> None:
    result, _ = found
    rng = np.random.default_rng(0)
    a, b = (rng.random(shape, dtype=np.float32) for shape in ((32, 48), (48, 64)))
    for one in (result, result.rivals[0].result):
        np.testing.assert_allclose(one.build()(a, b), a @ b, rtol=1e-4)

"""Which programs of a tuning run are timed again after it, and how."""

from __future__ import annotations

import math

import attrs
import pytest
from toy_parts import REFERENCE_BACKEND, TOY_SPACE

import autotune
from autotune import Record, RecordFilter, open_database
from autotune.errors import AutotuneError, UnknownNameError
from autotune.evaluation.compare import Arena, steps_of, time_programs, time_steps
from autotune.ir.workloads import gemm

History = list[tuple[int, float, float | None]]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[History, list[Record]]:
    """History and records of a run."""
    database = tmp_path_factory.mktemp("run") / "records.db"
    result = autotune.tune(
        gemm(m=8, n=8, k=8),
        backend=REFERENCE_BACKEND,
        parts={"search_space": TOY_SPACE, "cost_model": "random", "pruning_model": None},
        trials=12,
        threads=1,
        database=database,
    )
    with open_database(database, read_only=True) as opened:
        records = list(opened.records(RecordFilter(run_id=result.run_id)))
    return [(it.trial, it.elapsed, it.best) for it in result.history], records


def test_every_program_that_was_the_best_for_a_while(tuned: tuple[History, list[Record]]) -> None:
    history, records = tuned
    bests = [best for _, _, best in history]
    changes = [t for t, best in enumerate(bests) if best is not None and best not in bests[:t]]
    winner = next(record for record in records if record.trial == changes[-1])
    steps = steps_of(history, records, winner)
    assert [trial for trial, _, _ in steps] == changes
    assert [record.trial for _, _, record in steps] == changes

    # Another one that the confirmation put in its place is what the run ended with.
    other = next(record for record in records if record.trial not in changes)
    *before, last = steps_of(history, records, other)
    assert before == steps
    assert last == (history[-1][0], history[-1][1], other)


ARENA = Arena(turns=4, seconds=1e-6, backend=REFERENCE_BACKEND)


def test_they_take_turns(tuned: tuple[History, list[Record]]) -> None:
    _, records = tuned
    steps = [(record.trial, 0.5 * record.trial, record) for record in records[:3]]
    timed = time_steps(steps, ARENA)
    assert [(it["trial"], it["elapsed"]) for it in timed] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert [len(it["seconds"]) for it in timed] == [4] * 3
    assert all(0 < seconds < math.inf for it in timed for seconds in it["seconds"])

    # A program that cannot be built has no turns.
    unknown = attrs.evolve(records[0].candidate, values=(0,) * len(records[0].candidate.values))
    broken = attrs.evolve(records[0], candidate=unknown)
    again = [*records[:3], broken, records[0]]
    found, failed = time_programs(again, ARENA)
    assert set(found) == {record.candidate.digest for record in records[:3]}, "each once"
    assert list(failed) == [broken.candidate.digest] and all(failed.values())


def test_a_backend_that_only_a_file_names_is_not_imported(
    tuned: tuple[History, list[Record]],
) -> None:
    _, records = tuned
    with pytest.raises(UnknownNameError, match="installed plugins only"):
        time_programs(records[:1], attrs.evolve(ARENA, backend=None))


def test_programs_of_several_backends_take_no_turns(tuned: tuple[History, list[Record]]) -> None:
    _, (one, *_) = tuned
    other = attrs.evolve(
        one,
        candidate=attrs.evolve(one.candidate, values=one.candidate.values[::-1]),
        key=attrs.evolve(one.key, backend="other"),
    )
    with pytest.raises(AutotuneError, match="one workload and one backend"):
        time_programs([one, other], ARENA)

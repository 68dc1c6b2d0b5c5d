"""Conformance suite for databases: subclass it and give one fixture.

::

    class TestMyDatabase(DatabaseSuite):
        @pytest.fixture
        def open_database(self, tmp_path):
            return lambda: MyDatabase(tmp_path / "records")
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from autotune.errors import DatabaseError, InvalidValueError
from autotune.ir.workloads import gemm
from autotune.sketches import UNTUNED
from autotune.store.database import Database, RecordFilter
from autotune.store.records import Baseline, MeasureKey, Outcome, Record
from autotune.testing.sample_records import KEY, sample_baseline, sample_record, sample_run

OpenDatabase = Callable[[], Database]


class DatabaseRuns:
    """Promises of databases on runs."""

    @pytest.fixture
    def open_database(self) -> OpenDatabase:
        """A function that opens a database, empty at first; each call opens the same one."""
        raise NotImplementedError("override this fixture")

    def test_a_run_from_start_to_end(self, open_database: OpenDatabase) -> None:
        run = sample_run()
        state = {"z": [1, 2.5, None], "a": {"nested": True}, "rng": 2**100}
        with open_database() as database:
            database.start_run(run)
            assert database.run("run-1") == run
            database.update_run("run-1", checkpoint=state)
            database.update_run("run-1", trials=128, status="interrupted")
        with open_database() as database:
            found = database.find_run(run.identity)
            assert found is not None
            assert (found.trials, found.status) == (128, "interrupted")
            assert found.checkpoint == state
            # State may depend on the order of keys, as dictionaries keep it.
            assert list(found.checkpoint) == list(state)
            assert found.options == run.options

    def test_the_most_recent_run_of_an_identity(self, open_database: OpenDatabase) -> None:
        with open_database() as database:
            database.start_run(sample_run("run-1"))
            database.start_run(sample_run("run-2", created=0.0))
            database.start_run(sample_run("run-3", identity="other", workload="w" * 16))
            found = database.find_run(sample_run().identity)
            assert found is not None
            assert found.run_id == "run-2"
            assert [run.run_id for run in database.runs()] == ["run-1", "run-2", "run-3"]
            assert [run.run_id for run in database.runs("w" * 16)] == ["run-3"]

    def test_runs_of_a_network_are_the_most_recent_first(
        self, open_database: OpenDatabase
    ) -> None:
        runs = {"run-1": 'a "b"', "run-2": "other", "run-3": 'a "b"', "run-4": 'a "b" c'}
        with open_database() as database:
            database.start_run(sample_run("run-0", options={"nested": {"network": 'a "b"'}}))
            for run_id, network in runs.items():
                database.start_run(sample_run(run_id, options={"network": network}))
            found = [run.run_id for run in database.runs_of_network('a "b"')]
            assert found == ["run-3", "run-1"]
            assert not list(database.runs_of_network("none"))

    def test_one_of_those_that_claim_a_run_gets_it(self, open_database: OpenDatabase) -> None:
        state = {"owner": "", "scores": [1.0, float("nan")], "rng": 2**100}
        with open_database() as one, open_database() as other:
            one.start_run(sample_run(checkpoint=state, status="interrupted"))
            found, also_found = one.run("run-1"), other.run("run-1")
            assert found is not None
            assert also_found is not None
            assert one.claim_run(found, {**state, "owner": "one"})
            assert not other.claim_run(also_found, {**state, "owner": "other"})
            claimed = other.run("run-1")
            assert claimed is not None
            assert claimed.checkpoint is not None
            assert (claimed.status, claimed.checkpoint["owner"]) == ("running", "one")
            assert other.claim_run(claimed, {**state, "owner": "other"})
            one.update_run("run-1", status="finished")
            again = other.run("run-1")
            assert again is not None
            one.update_run("run-1", status="failed")
            assert not other.claim_run(again, state)
            with pytest.raises(DatabaseError, match="run-9"):
                one.claim_run(sample_run("run-9"), state)

    def test_mistakes_with_runs(self, open_database: OpenDatabase) -> None:
        with open_database() as database:
            database.start_run(sample_run())
            with pytest.raises(DatabaseError, match="run-1"):
                database.start_run(sample_run())
            with pytest.raises(DatabaseError, match="run-9"):
                database.update_run("run-9", status="finished")
            with pytest.raises(DatabaseError, match="run-9"):
                database.update_run("run-9")
            with pytest.raises(InvalidValueError, match="finished"):
                database.update_run("run-1", status="done")
            assert database.run("run-1") == sample_run()


class DatabaseSuite(DatabaseRuns):
    """The contract of databases."""

    def test_is_empty_at_first(self, open_database: OpenDatabase) -> None:
        with open_database() as database:
            assert list(database.records()) == []
            assert database.count() == 0
            assert database.best(RecordFilter()) is None
            assert database.lookup("0" * 16, KEY) is None
            assert database.baselines() == []
            assert database.runs() == []
            assert database.run("run-1") is None
            assert database.find_run("nothing") is None
            assert database.location

    def test_gives_back_what_was_stored(self, open_database: OpenDatabase) -> None:
        records = [sample_record(0), sample_record(1, status="crash"), sample_record(2, 5e-4)]
        with open_database() as database:
            numbers = [database.append_record(record) for record in records]
            assert numbers == sorted(set(numbers))
            assert list(database.records()) == records
        with open_database() as database:
            again = list(database.records())
        assert again == records
        assert [r.to_json() for r in again] == [r.to_json() for r in records]
        assert [dict(r.outcome.timings) for r in again] == [
            dict(r.outcome.timings) for r in records
        ]

    def test_stores_only_what_is_missing(self, open_database: OpenDatabase) -> None:
        first, second = sample_record(0), sample_record(1, status="crash")
        others = [
            sample_record(0, run_id="run-2"),
            sample_record(2, tile=0),
            sample_record(0, tile=4),
            sample_record(0, key=evolve(KEY, threads=3)),
        ]
        with open_database() as database:
            database.append_record(first)
            assert database.append_missing([]) == 0
            assert database.append_missing([first, second, second]) == 1
            assert database.append_missing([second, *others, first]) == len(others)
            assert list(database.records()) == [first, second, *others]
        with open_database() as database:
            changed = evolve(first, outcome=Outcome("ok", 1.0), created=5.0)
            assert database.append_missing([changed]) == 0
            assert next(database.records()) == first

    def test_a_record_stands_alone(self, open_database: OpenDatabase) -> None:
        with open_database() as database:
            database.append_record(sample_record())
            (record,) = database.records()
        text = json.dumps(record.to_json())
        assert Record.from_json(json.loads(text)) == record

    def test_equal_sketches_under_other_names_stay_apart(
        self, open_database: OpenDatabase
    ) -> None:
        one = sample_record(1)
        sketch = evolve(one.candidate.sketch, name="other", constraints=())
        two = evolve(one, trial=2, candidate=evolve(one.candidate, sketch=sketch))
        with open_database() as database:
            database.append_record(one)
            database.append_record(two)
            assert [r.candidate.sketch for r in database.records()] == [
                one.candidate.sketch,
                sketch,
            ]

    @pytest.mark.parametrize(
        ("where", "trials"),
        [
            (RecordFilter(), [0, 1, 2, 3]),
            (RecordFilter(workload=gemm(m=8, n=8, k=8).digest), [0, 1, 3]),
            (RecordFilter(workload_name="gemm"), [0, 1, 2, 3]),
            (RecordFilter(workload_name="conv2d"), []),
            (RecordFilter(run_id="run-2"), [1]),
            (RecordFilter(status="timeout"), [3]),
            (RecordFilter(key=KEY), [0, 2, 3]),
            (RecordFilter(threads=1), [1]),
            (RecordFilter(target="fingerprint", backend="reference"), [0, 1, 2, 3]),
            (RecordFilter(protocol="cold-1"), []),
            (RecordFilter(key=KEY, status="ok"), [0, 2]),
            (RecordFilter(candidate=sample_record(3).candidate.digest), [3]),
            (RecordFilter(candidate=sample_record(1).candidate.digest, run_id="run-2"), [1]),
            (RecordFilter(candidate=sample_record(1).candidate.digest, run_id="run-1"), []),
        ],
    )
    def test_filters(
        self, open_database: OpenDatabase, where: RecordFilter, trials: list[int]
    ) -> None:
        with open_database() as database:
            database.append_record(sample_record(0))
            database.append_record(sample_record(1, run_id="run-2", key=evolve(KEY, threads=1)))
            database.append_record(sample_record(2, workload=gemm(m=4, n=4, k=4)))
            database.append_record(sample_record(3, status="timeout"))
            assert [record.trial for record in database.records(where)] == trials
            assert database.count(where) == len(trials)

    def test_reads_many_records_while_writing(self, open_database: OpenDatabase) -> None:
        with open_database() as database:
            for trial in range(600):
                database.append_record(sample_record(trial))
            trials = []
            for record in database.records(RecordFilter(run_id="run-1")):
                trials.append(record.trial)
                if record.trial == 0:
                    database.append_record(sample_record(600))
            assert trials == list(range(601))

    def test_best_is_the_fastest_that_is_ok(self, open_database: OpenDatabase) -> None:
        with open_database() as database:
            for trial, latency in enumerate([3e-3, 1e-3, 1e-3, 2e-3]):
                database.append_record(sample_record(trial, latency))
            database.append_record(sample_record(4, status="wrong_result"))
            database.append_record(sample_record(5, 1e-9, key=evolve(KEY, compiler_version="2")))
            where = RecordFilter(workload=gemm(m=8, n=8, k=8).digest, key=KEY)
            assert _trial(database.best(where)) == 1
            assert _trial(database.best(RecordFilter())) == 5

    def test_what_was_timed_here_comes_before_claims(self, open_database: OpenDatabase) -> None:
        def marked(trial: int, latency: float, **marks: Any) -> Record:
            record = sample_record(trial, latency, tile=trial, lowered=f"program {trial}")
            return evolve(record, outcome=evolve(record.outcome, **marks))

        claim, beaten = marked(0, 1e-9, imported=True), marked(1, 1e-4, beaten_by="somebody")
        workload = claim.candidate.sketch.workload.digest

        def best(database: Database, **where: Any) -> int | None:
            alike = {"workload": workload, "key": KEY, **where}
            found = _trial(database.best(RecordFilter(**alike)))
            each = [record.trial for record in database.best_of_each(RecordFilter(**alike))]
            assert each == ([] if found is None else [found])
            return found

        with open_database() as database:
            database.append_record(claim)
            assert best(database) == best(database, run_id="run-1") == 0
            database.append_record(beaten)
            assert best(database) == best(database, run_id="run-1") == 1
            database.append_record(marked(2, 2e-3))
            database.append_record(marked(3, 1e-3))
        with open_database() as database:
            assert best(database) == best(database, run_id="run-1") == 3
            assert best(database, imported=True) == 0
            assert best(database, imported=False) == 3
            ours = RecordFilter(imported=False)
            assert [record.trial for record in database.records(ours)] == [1, 2, 3]
            assert database.count(RecordFilter(imported=True)) == 1
            assert database.lookup(claim.candidate.digest, KEY) is None
            assert database.lookup_program("program 0", workload, KEY) is None
            assert database.lookup(beaten.candidate.digest, KEY) == beaten
            with pytest.raises(DatabaseError, match="no record"):
                database.amend("run-1", claim.candidate.digest, Outcome("crash"))
            assert list(database.records())[:2] == [claim, beaten]

    def test_lookup_gives_the_most_recent_that_counts(self, open_database: OpenDatabase) -> None:
        with open_database() as database:
            digest = sample_record(0, tile=4).candidate.digest
            database.append_record(sample_record(0, tile=4))
            database.append_record(sample_record(1, 2e-3, tile=4))
            database.append_record(sample_record(2, tile=4, status="crash"))
            database.append_record(sample_record(3, tile=4, status="timeout"))
            database.append_record(sample_record(4, tile=8))
            assert _trial(database.lookup(digest, KEY)) == 1
            assert database.lookup(digest, evolve(KEY, protocol="cold-1")) is None
            crashed = sample_record(5, tile=2, status="crash")
            database.append_record(crashed)
            assert database.lookup(crashed.candidate.digest, KEY) is None

    def test_failures_that_would_repeat_are_looked_up(self, open_database: OpenDatabase) -> None:
        with open_database() as database:
            for tile, status in enumerate(("invalid", "build_error", "wrong_result")):
                record = sample_record(0, tile=tile, status=status)
                database.append_record(record)
                found = database.lookup(record.candidate.digest, KEY)
                assert found is not None
                assert found.outcome == record.outcome

    def test_a_program_is_kept_with_its_records(self, open_database: OpenDatabase) -> None:
        text = "def main(a, b):  # ünïcode\n    pass\n"
        records = [
            sample_record(0, program=text),
            sample_record(1),
            sample_record(2, program=text),
        ]
        with open_database() as database:
            for record in records:
                database.append_record(record)
        with open_database() as database:
            assert [record.program for record in database.records()] == [text, None, text]

    def test_best_of_each_workload_and_key(self, open_database: OpenDatabase) -> None:
        other = evolve(KEY, threads=1)
        with open_database() as database:
            assert database.best_of_each() == []
            for trial, latency in enumerate([3e-3, 1e-3, 1e-3, 2e-3]):
                database.append_record(sample_record(trial, latency))
            database.append_record(sample_record(4, 5.0, key=other))
            database.append_record(sample_record(5, 4.0, key=other, run_id="run-2"))
            database.append_record(sample_record(6, 9.0, workload=gemm(m=4, n=4, k=4)))
            database.append_record(sample_record(7, workload=gemm(m=2, n=2, k=2), status="crash"))

            def trials(where: RecordFilter | None = None) -> list[int]:
                return [record.trial for record in database.best_of_each(where)]

            assert trials() == [1, 5, 6]
            assert trials(RecordFilter(key=KEY)) == [1, 6]
            assert trials(RecordFilter(threads=1)) == [5]
            assert trials(RecordFilter(run_id="run-1")) == [1, 4, 6]
            assert trials(RecordFilter(run_id="run-1", key=other)) == [4]
            assert trials(RecordFilter(workload=gemm(m=4, n=4, k=4).digest)) == [6]
            assert trials(RecordFilter(workload_name="gemm", status="ok")) == [1, 5, 6]
            assert trials(RecordFilter(workload_name="conv2d")) == []
            assert trials(RecordFilter(status="crash")) == []

    def test_looks_up_programs(self, open_database: OpenDatabase) -> None:
        workload = gemm(m=8, n=8, k=8).digest
        # Digest of the lowered program, of the machine code, and of the candidate measured.
        cases = [
            ("one", "machine", ""),
            ("one", "machine", "other"),
            ("two", "machine", ""),
            ("three", "", ""),
            ("", "", ""),
        ]
        with open_database() as database:
            for trial, (lowered, binary, original) in enumerate(cases):
                database.append_record(
                    sample_record(trial, lowered=lowered, binary=binary, duplicate_of=original)
                )
            database.append_record(sample_record(5, status="crash", lowered="three"))
            database.append_record(sample_record(6, status="invalid", lowered="wrong"))

            def trial_of(program: str, workload: str = workload, key: MeasureKey = KEY) -> Any:
                return _trial(database.lookup_program(program, workload, key))

            found = [trial_of(name) for name in ("one", "two", "three", "machine", "wrong")]
            assert found == [0, 2, 3, 2, 6]
            assert trial_of("none") is None
            assert trial_of("one", "0" * 16) is None
            assert trial_of("one", key=evolve(KEY, threads=1)) is None
            with pytest.raises(InvalidValueError, match="empty"):
                database.lookup_program("", workload, KEY)

    def test_amends_an_outcome_and_those_that_equal_it(self, open_database: OpenDatabase) -> None:
        winner = sample_record(0, 1e-6, tile=4, lowered="same")
        digest = winner.candidate.digest
        duplicate = sample_record(1, 1e-6, tile=8, lowered="same", duplicate_of=digest)
        elsewhere = evolve(duplicate, trial=2, key=evolve(KEY, threads=1))
        wrong = Outcome("wrong_result", message="differs", lowered="same")
        with open_database() as database:
            for record in (winner, duplicate, elsewhere, sample_record(3, 1e-3, tile=2)):
                database.append_record(record)
            database.amend("run-1", digest, wrong)
        with open_database() as database:
            outcomes = [record.outcome for record in database.records()]
            assert outcomes[0] == wrong
            assert outcomes[1] == evolve(wrong, duplicate_of=digest)
            assert outcomes[2] == elsewhere.outcome
            assert _trial(database.best(RecordFilter(key=KEY))) == 3
            assert database.lookup(digest, KEY) == evolve(winner, outcome=wrong)
            found = database.lookup_program("same", winner.candidate.sketch.workload.digest, KEY)
            assert found is not None
            assert found.outcome == wrong

    def test_amends_an_outcome_under_one_measure_key(self, open_database: OpenDatabase) -> None:
        """Backends that compete in one run may be given equal candidates."""
        first = sample_record(0, 1e-6, tile=4)
        second = evolve(first, trial=1, key=evolve(KEY, backend="another"))
        wrong = Outcome("wrong_result", message="differs")
        with open_database() as database:
            for record in (first, second):
                database.append_record(record)
            database.amend("run-1", first.candidate.digest, wrong, second.key)
            with pytest.raises(DatabaseError, match=first.candidate.digest):
                unknown = evolve(KEY, backend="a third")
                database.amend("run-1", first.candidate.digest, wrong, unknown)
        with open_database() as database:
            assert list(database.records()) == [first, evolve(second, outcome=wrong)]

    def test_mistakes_with_outcomes(self, open_database: OpenDatabase) -> None:
        with open_database() as database:
            database.append_record(sample_record())
            digest = sample_record().candidate.digest
            with pytest.raises(DatabaseError, match="run-9"):
                database.amend("run-9", digest, Outcome("crash"))
            with pytest.raises(DatabaseError, match="0000"):
                database.amend("run-1", "0000", Outcome("crash"))
            with pytest.raises(InvalidValueError, match="nan"):
                database.append_record(sample_record(1, float("nan")))
            assert list(database.records()) == [sample_record()]

    def test_baselines(self, open_database: OpenDatabase) -> None:
        workload, other = gemm(m=8, n=8, k=8).digest, evolve(KEY, threads=1)
        slow = sample_baseline(1.0)
        slower = sample_baseline(2.0, run_id="run-2", created=2.0)
        default = sample_baseline(0.5, name="the default schedule", counts_as=0.25)
        elsewhere = sample_baseline(3.0, key=other, workload="b" * 16)
        late = sample_baseline(None, run_id="run-3", created=3.0)
        with open_database() as database:
            for baseline in (slow, default, slower, late, elsewhere):
                database.append_baseline(baseline)
        with open_database() as database:

            def found(**where: Any) -> list[Baseline]:
                return database.baselines(RecordFilter(**where))

            assert found() == [default, slower, elsewhere]
            assert found(workload=workload, key=KEY) == [default, slower]
            assert found(key=other) == found(threads=1) == [elsewhere]
            assert found(run_id="run-1") == [slow, default, elsewhere]
            assert found(workload="c" * 16) == found(workload_name="conv2d") == []
            assert database.count() == 0
            assert list(database.records()) == list(database.baseline_records()) == []

    @pytest.mark.parametrize(
        ("latency", "counts_as", "used"),
        [
            (2e-3, None, "run-1/0"),
            (1e-3, None, "run-1/untuned"),
            (5e-4, None, "run-1/untuned"),
            # It has taken turns with the fastest, which tell more than its own latency.
            (2e-3, 1e-3, "run-1/untuned"),
            (5e-4, 2e-3, "run-1/0"),
            (None, None, "run-1/0"),
        ],
    )
    def test_the_best_is_the_baseline_where_nothing_is_a_gain_over_it(
        self,
        open_database: OpenDatabase,
        latency: float | None,
        counts_as: float | None,
        used: str,
    ) -> None:
        with open_database() as database:
            for trial, seconds in enumerate((1e-3, 4e-3)):
                database.append_record(sample_record(trial, seconds))
            database.append_baseline(sample_baseline(latency, counts_as=counts_as))
        with open_database() as database:
            wheres = (RecordFilter(), RecordFilter(key=KEY), RecordFilter(run_id="run-1"))
            for where in wheres:
                (each,), best = database.best_of_each(where), database.best(where)
                assert best == each
                assert best is not None
                assert best.name == used
                assert Record.from_json(json.loads(json.dumps(best.to_json()))) == best
            (fastest,) = database.fastest_of_each()
            assert (fastest.trial, database.count()) == (0, 2)
            candidate = database.best(RecordFilter(candidate=fastest.candidate.digest))
            assert candidate == fastest

    def test_the_faster_of_two_baselines_is_used(self, open_database: OpenDatabase) -> None:
        with open_database() as database:
            database.append_record(sample_record(0, 1e-3))
            for name, latency in (("the default schedule", 5e-4), (UNTUNED, 8e-4)):
                database.append_baseline(sample_baseline(latency, name=name))
            best = database.best(RecordFilter())
        assert best is not None
        assert (best.baseline, best.name) == ("the default schedule", "run-1/default")

    def test_baselines_of_others_are_stored_once(self, open_database: OpenDatabase) -> None:
        fastest = sample_record(0, 1e-3)
        records = [fastest, sample_baseline(5e-4, counts_as=1e-3).record(fastest)]
        with open_database() as database:
            assert database.append_missing(records) == 2
            assert database.append_missing(records) == 0
            assert list(database.records()) == [fastest]
            assert list(database.baseline_records()) == records[1:]
            assert database.best(RecordFilter()) == records[1]

    def test_closes_once_and_for_all(self, open_database: OpenDatabase) -> None:
        database = open_database()
        database.close()
        database.close()
        with pytest.raises(DatabaseError):
            database.append_record(sample_record())
        with pytest.raises(DatabaseError):
            database.count()

    def test_two_at_once_see_each_other(self, open_database: OpenDatabase) -> None:
        with open_database() as one, open_database() as two:
            one.append_record(sample_record(0))
            two.append_record(sample_record(1))
            assert [record.trial for record in one.records()] == [0, 1]
            assert [record.trial for record in two.records()] == [0, 1]


def _trial(record: Record | None) -> int | None:
    return None if record is None else record.trial

"""Conformance of databases with runs: a part of :mod:`autotune.testing.database_suite`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotune.errors import DatabaseError, InvalidValueError
from autotune.store.database import Database
from autotune.testing.sample_records import sample_run

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

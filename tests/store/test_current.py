from __future__ import annotations

import threading
from pathlib import Path

import pytest

import autotune
from autotune.errors import InvalidValueError
from autotune.store.current import DEFAULT_DATABASE, current_database
from autotune.tuning.options import TuneOptions


def test_the_innermost_one_counts(tmp_path: Path) -> None:
    assert TuneOptions().database == current_database() == DEFAULT_DATABASE
    with autotune.database(tmp_path / "one.db") as one:
        assert TuneOptions().database == one == str(tmp_path / "one.db")
        with autotune.database("two.db"):
            assert TuneOptions().database == "two.db"
            assert TuneOptions(database="named.db").database == "named.db"
        assert current_database() == one
    assert current_database() == DEFAULT_DATABASE


def test_it_ends_with_an_exception() -> None:
    with pytest.raises(KeyError), autotune.database("one.db"):
        raise KeyError
    assert current_database() == DEFAULT_DATABASE


def test_other_threads_have_their_own() -> None:
    found: list[str] = []
    with autotune.database("one.db"):
        thread = threading.Thread(target=lambda: found.append(current_database()))
        thread.start()
        thread.join()
    assert found == [DEFAULT_DATABASE]


@pytest.mark.parametrize("path", [None, 3, ""])
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(InvalidValueError, match="a database is a path, not"):
        autotune.database(path).__enter__()  # type: ignore[arg-type]

"""Every test runs in an environment of ``make test``, ``test-slow`` or ``test-long``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from needs import MACHINE, PACKAGES, ROOT, named_in_file, needs_of_file
from needs_plugin import LEFT_OUT, TESTS
from selections import (
    Facts,
    all_selections,
    calls_of_pytest,
    may_hold,
    nowhere,
    read_environments,
)

TOX_INI = """
[more]
has = torch,tvm

[testenv:some]
commands =
    python -c "print()"
    pytest -n 2 --has {[more]has} --needing torch -m "not slow" {posargs:tests/ir}
"""


def fact(name: str, needed: str = "", marks: str = "") -> Facts:
    return Facts(name, frozenset(needed.split()), frozenset(marks.split()))


@pytest.mark.everywhere
def test_no_test_is_left_out(request: pytest.FixtureRequest) -> None:
    """Of those that this session collects, selected or not."""
    left = nowhere(request.config.stash[TESTS], all_selections())
    assert not left, "\n".join(f"{test.name} needs {sorted(test.needs)}" for test in left)


@pytest.mark.everywhere
def test_both_sets_of_tests_are_run_together(request: pytest.FixtureRequest) -> None:
    """In fewer sessions, and none is left out or added."""
    every = all_selections()
    together = [it for it in every if it.target == "test-all"]
    apart = [it for it in every if it.target in ("test", "test-slow")]
    assert len(together) < len(apart)
    tests = request.config.stash[TESTS]
    assert nowhere(tests, together) == nowhere(tests, apart)


@pytest.mark.everywhere
def test_files_that_are_not_collected_here_are_collected_elsewhere(
    request: pytest.FixtureRequest,
) -> None:
    """Both sessions of ``make test`` together see all tests, hence all that are left out."""
    every = [it for it in all_selections() if it.target == "test"]
    assert {it.environment for it in every} == {"tests", "torch"}
    for path in request.config.stash[LEFT_OUT]:
        found = needs_of_file(path)
        assert any(
            found <= it.has and (not it.needing or it.needing & named_in_file(path))
            for it in every
        ), f"{path} imports {sorted(found)} at its top; import them within its tests"


def test_what_tox_and_make_say_is_read(tmp_path: Path) -> None:
    (tmp_path / "tox.ini").write_text(TOX_INI)
    environments = read_environments(tmp_path / "tox.ini")
    (plain,) = calls_of_pytest("some", environments)
    assert (plain.has, plain.needing) == ({"torch", "tvm"}, {"torch"})
    assert (plain.expression, plain.paths) == ("not slow", ("tests/ir",))
    (given,) = calls_of_pytest("some", environments, ["-m", "slow and not long", "tests/nest"])
    assert (given.expression, given.paths) == ("slow and not long", ("tests/nest",))
    with pytest.raises(ValueError, match="given tests/nets, which is not there"):
        list(calls_of_pytest("some", environments, ["tests/nets"]))


@pytest.mark.parametrize(
    ("test", "runs"),
    [
        (fact("tests/ir/test_a.py::test_b[c]", "torch"), True),
        (fact("tests/ir/test_a.py::test_b", "torch root"), True),
        (fact("tests/ir/test_a.py::test_b", "torch tvm"), True),
        (fact("tests/ir/test_a.py::test_b", "torch mlir"), False),
        (fact("tests/ir/test_a.py::test_b", "tvm"), False),
        (fact("tests/ir/test_a.py::test_b", "torch", "slow"), False),
        (fact("tests/irs/test_a.py::test_b", "torch"), False),
        (fact("tests/ir/test_a.py::test_b", "torch mlir gpu"), None),
    ],
)
def test_a_test_runs_where_all_that_it_needs_is(
    test: Facts, runs: bool | None, tmp_path: Path
) -> None:
    (tmp_path / "tox.ini").write_text(TOX_INI)
    selections = list(calls_of_pytest("some", read_environments(tmp_path / "tox.ini")))
    if runs is not None:
        assert selections[0].runs(test) == runs
    assert nowhere([test], selections) == ([test] if runs is False else [])


def test_an_expression_may_hold_for_some_of_the_marks_of_a_file() -> None:
    assert may_hold("slow and not long", frozenset({"slow", "long", "gpu"}))
    assert not may_hold("slow and not long", frozenset({"long", "gpu"}))
    assert may_hold("not slow and not long", frozenset({"slow"}))
    assert may_hold("", frozenset()) and not may_hold("gpu", frozenset({"slow"}))


def test_needs_are_found_in_imports_and_in_what_these_import() -> None:
    folder = ROOT / "plugins" / "tvm" / "tests"
    assert needs_of_file(folder / "test_pad.py") == {"tvm"}
    assert needs_of_file(folder / "rpc" / "test_loopback.py") == {"rpc", "tvm"}
    assert needs_of_file(folder / "networks" / "test_torch_backend_cuda.py") >= {"torch", "tvm"}
    # It imports nothing of the kind, though programs in its strings do.
    assert "torch" not in needs_of_file(ROOT / "tests" / "networks" / "bench" / "test_bench.py")
    assert "torch" in named_in_file(ROOT / "tests" / "measure" / "test_vendor_torch.py")
    assert "torch" not in named_in_file(ROOT / "tests" / "ir" / "test_bfloat16.py")


def test_every_name_is_needed_by_a_test() -> None:
    """A name that none needs is one of the past."""
    files = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("plugins/*/tests/**/*.py")]
    tests = [path for path in files if path.name.startswith("test_")]
    named = frozenset().union(*(named_in_file(path) for path in tests if path != Path(__file__)))
    assert {*PACKAGES, *MACHINE} - {"gpu"} <= named


def test_nothing_else_asks_for_packages() -> None:
    """A case that is made only where a package is found is a skipped one that nobody sees.

    Ruff refuses pytest's own ways to skip.
    """
    files = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("plugins/*/tests/**/*.py")]
    asking = re.compile(r"\butil\.find_spec\(|\bimport find_spec\b")
    found = [path.name for path in files if asking.search(path.read_text(encoding="utf-8"))]
    assert found == ["needs.py"]

"""Every test runs in an environment of ``make test``, ``test-slow`` or ``test-long``."""

from __future__ import annotations

from pathlib import Path

import pytest
from needs import PACKAGES, is_here, mentions, needs_of_file
from needs_plugin import LEFT_OUT, TESTS
from selections import Facts, all_selections, nowhere, read_environments

pytestmark = pytest.mark.everywhere

TOX_INI = """
[more]
has = torch,tvm

[testenv:some]
commands =
    python -c "print()"
    pytest -n 2 --has {[more]has} --needing torch -m "not slow" {posargs:tests}
"""


def fact(name: str, needs: str = "", marks: str = "") -> Facts:
    return Facts(name, frozenset(needs.split()), frozenset(marks.split()))


def test_no_test_is_left_out(request: pytest.FixtureRequest) -> None:
    """Of those that this session collects: others are collected in another environment."""
    selections = all_selections()
    left = nowhere(request.config.stash[TESTS], selections)
    assert not left, "\n".join(f"{test.name} needs {sorted(test.needs)}" for test in left)


def test_every_file_is_collected_at_every_change(request: pytest.FixtureRequest) -> None:
    """Which tests are in a file is seen where it can be imported."""
    every = [it for it in all_selections() if it.target == "test"]
    for path in request.config.stash[LEFT_OUT]:
        needs = needs_of_file(path)
        assert any(
            needs <= it.has and (not it.needing or any(mentions(path, n) for n in it.needing))
            for it in every
        ), f"{path} imports {sorted(needs)} at its top; import them within its tests"

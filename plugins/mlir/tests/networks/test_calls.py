"""Which functions are run, and how often."""

from __future__ import annotations

import pytest
from autotune_mlir.networks.calls import callees_first, count_calls, find_entries
from autotune_mlir.networks.function import ModuleFunction

from autotune.errors import InvalidValueError, UnsupportedWorkload


def module(problems: str = "", **calls: str) -> dict[str, ModuleFunction]:
    """Functions by name, each with the names of those that it calls."""
    error = UnsupportedWorkload("not read")
    return {
        name: ModuleFunction(
            *(name, "() -> ()", (), (), tuple(called), (), 0.0, True),
            problem="it is dynamic" if name in problems else "",
            imported=None,
            refusal=error,
        )
        for name, called in calls.items()
    }


def test_calls_are_counted_through_callers() -> None:
    functions = module(a="", b="aa", main="abb")
    assert count_calls(functions) == {"a": 5, "b": 2, "main": 1}
    assert [it.name for it in callees_first(functions)] == ["a", "b", "main"]


def test_without_calls_each_function_counts_once() -> None:
    functions = module(a="", b="")
    assert count_calls(functions) == {"a": 1, "b": 1}
    assert [it.name for it in find_entries(functions)] == ["a", "b"]


def test_what_cannot_be_run_is_entered_by_what_it_calls() -> None:
    functions = module("m", a="", b="a", m="abx")
    assert [it.name for it in find_entries(functions)] == ["a", "b"]
    assert find_entries(module("am", a="", m="a")) == ()


@pytest.mark.parametrize("calls", [{"a": "a"}, {"main": "a", "a": "b", "b": "a"}])
def test_recursion_is_refused(calls: dict[str, str]) -> None:
    with pytest.raises(InvalidValueError, match="function @a calls itself, at once or through"):
        count_calls(module(**calls))

"""Which functions of a module are run, and how often one run calls each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from autotune.errors import InvalidValueError
from autotune_mlir.networks.function import ModuleFunction

__all__ = ["callees_first", "count_calls", "find_entries"]

Functions = Mapping[str, ModuleFunction]


def count_calls(functions: Functions) -> dict[str, int]:
    """How often one run calls each function: what no other function calls is called once.

    Args:
        functions: Those of a module that have a body, by name.

    Raises:
        InvalidValueError: functions call each other in a circle; names one.
    """
    counts: Counter[str] = Counter(_roots(functions))
    for function in reversed(callees_first(functions)):
        for called in function.calls:
            counts[called] += counts[function.name]
    return {name: counts[name] for name in functions}


def find_entries(functions: Functions) -> tuple[ModuleFunction, ...]:
    """The functions that a network is called by, in order.

    They are those that no other one calls. Of one that cannot be run on arrays, it is those that
    it calls.

    Args:
        functions: Those of a module that have a body, by name; they call each other in no circle.
    """
    found: dict[str, ModuleFunction] = {}

    def visit(names: Iterable[str]) -> None:
        for name in names:
            function = functions.get(name)
            if function is None:
                continue
            if function.problem:
                visit(function.calls)
            else:
                found[name] = function

    visit(_roots(functions))
    return tuple(found.values())


def _roots(functions: Functions) -> list[str]:
    called = {name for function in functions.values() for name in function.calls}
    return [name for name in functions if name not in called]


def callees_first(functions: Functions) -> list[ModuleFunction]:
    """The functions in an order in which each comes after all that it calls.

    Args:
        functions: Those of a module that have a body, by name.

    Raises:
        InvalidValueError: functions call each other in a circle; names one.
    """
    order: list[ModuleFunction] = []
    done: dict[str, bool] = {}

    def visit(name: str) -> None:
        if name not in functions or done.get(name):
            return
        if name in done:
            raise InvalidValueError(
                f"function @{name} calls itself, at once or through others, so that nothing says "
                "how often it is called; give a module without recursion"
            )
        done[name] = False
        for called in functions[name].calls:
            visit(called)
        done[name] = True
        order.append(functions[name])

    for name in (*_roots(functions), *functions):
        visit(name)
    return order

"""Kernel Tuner's own strategies against the same spaces, in the same evaluations.

They run as Kernel Tuner runs them: its code, its search space (of the recorded configurations),
its budget and its treatment of failures; only what would build and time a kernel looks it up. What
is looked up again is not counted again. The package is optional, and imported when asked for.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from autotune.errors import AutotuneError, InvalidValueError, PluginError, UnknownNameError
from autotune.evaluation.replay.recorded import OutcomeTable, RecordedSpace
from autotune.evaluation.replay.runs import Budget, Ledger, Replay

__all__ = ["COMPARED", "PREFIX", "kernel_tuner_names", "refusal", "replay"]

PREFIX = "kernel-tuner:"
COMPARED = (
    "adaptive_tabu_greywolf",
    "basinhopping",
    "diff_evo",
    "dual_annealing",
    "firefly_algorithm",
    "genetic_algorithm",
    "greedy_ils",
    "greedy_mls",
    "hybrid_vndx",
    "mls",
    "pso",
    "random_sample",
    "simulated_annealing",
)
"""Strategies that ``kernel-tuner`` alone stands for: all that need no further package."""

_PACKAGE = "kernel_tuner"
_CALLS_PER_EVALUATION = 1000
_ERRORS: Mapping[str, str] = {
    "build_error": "CompilationFailedConfig",
    "invalid": "InvalidConfig",
}


def kernel_tuner_names() -> tuple[str, ...]:
    """Every strategy of Kernel Tuner.

    Raises:
        AutotuneError: the package is not installed, or of a version that is not understood.
    """
    return tuple(_module("interface").strategy_map)


def refusal(name: str, table: OutcomeTable) -> str:
    """Say why a strategy of Kernel Tuner cannot be replayed against a space; "" where it can.

    Raises:
        AutotuneError: as of :func:`kernel_tuner_names`.
        UnknownNameError: Kernel Tuner has no such strategy.
    """
    short = name.removeprefix(PREFIX)
    known = kernel_tuner_names()
    if short not in known:
        raise UnknownNameError("strategy of Kernel Tuner", short, known)
    if table.recorded is None:
        return "Kernel Tuner searches parameters that were recorded, not schedules"
    try:
        # Imports what the strategy needs.
        _ = _module("interface").strategy_map[short].tune
    except ImportError as error:
        return f"it needs a package that is not installed: {error}"
    return ""


def replay(
    name: str,
    options: Mapping[str, Any],
    table: OutcomeTable,
    seed: int,
    budget: Budget,
    clock: Callable[[], float],
) -> Replay:
    """Run a strategy of Kernel Tuner against a space.

    Args:
        name: ``kernel-tuner:NAME``.
        options: Its ``strategy_options``.
        table: The space.
        seed: Of the generators of Python and numpy, which it draws from; they are put back.
        budget: What it may use.
        clock: Processor time of this process, in seconds.

    Raises:
        PluginError: it fails.
    """
    assert table.recorded is not None
    began = clock()
    strategy = _module("interface").strategy_map[name.removeprefix(PREFIX)]
    util = _module("util")
    searchspace, results, places = _prepared(table.recorded)
    ledger = Ledger(budget)
    runner = _runner_class()(table.recorded, results, places, ledger, clock)
    evaluations = min(budget.evaluations, searchspace.size)
    tuning = _tuning_options(searchspace, table.recorded, {**options, "max_fevals": evaluations})
    tuning["budget"] = util.TuningBudget(None, evaluations)
    with _seeded(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            strategy.tune(searchspace, runner, tuning)
        except util.StopCriterionReached:
            pass
        except Exception as error:  # whatever the strategies of others raise
            raise PluginError(
                f"{name} failed on {table.name}: {type(error).__name__}: {error}"
            ) from error
    label = name if not options else f"{name}[{_shown(options)}]"
    named = (table.name, table.digest, label, seed)
    return ledger.run(named, clock() - began - runner.spent, runner.spent, "stopped")


def _shown(options: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(options.items()))


def _module(name: str) -> Any:
    """A module of Kernel Tuner.

    Raises:
        AutotuneError: the package is not installed.
    """
    try:
        importlib.import_module(_PACKAGE)
    except ModuleNotFoundError as error:
        if error.name != _PACKAGE:
            raise
        raise AutotuneError(
            "strategies kernel-tuner:NAME need the package kernel-tuner, which is not installed: "
            "run pip install kernel-tuner==1.5.0"
        ) from error
    return importlib.import_module(f"{_PACKAGE}.{name}")


@cache
def _searchspace_class() -> Any:
    """Kernel Tuner's search space, which remembers neighbours over runs and not within objects.

    The lists of neighbours are functions of the space alone. Its own caches decide how neighbours
    are drawn, so that each run begins with empty ones.
    """
    base = _module("searchspace").Searchspace

    class SharedSearchspace(base):  # type: ignore[misc, valid-type]
        """A search space whose copies share lists of neighbours."""

        def get_neighbors_indices_no_cache(
            self, param_config: Any, neighbor_method: Any = None, build_full_cache: bool = False
        ) -> Any:
            if build_full_cache:
                return super().get_neighbors_indices_no_cache(
                    param_config, neighbor_method, build_full_cache
                )
            key = (neighbor_method or self.neighbor_method, tuple(param_config))
            if key not in self.shared_neighbours:
                self.shared_neighbours[key] = super().get_neighbors_indices_no_cache(
                    param_config, neighbor_method
                )
            return list(self.shared_neighbours[key])

    return SharedSearchspace


Places = dict[tuple[Any, ...], int]
"""Numbers of configurations by their values, in the order of the parameters."""


@lru_cache(maxsize=1)
def _lookups(recorded: RecordedSpace) -> tuple[Any, list[dict[str, Any]], Places]:
    """A search space of these configurations, what is measured of each, and where each is."""
    util = _module("util")
    names = [parameter.name for parameter in recorded.parameters]
    known, results, places = {}, [], {}
    for number, it in enumerate(recorded.evaluations):
        # It takes the values of a configuration in the order in which they come.
        known[str(number)] = {name: it.configuration[name] for name in names}
        places[tuple(known[str(number)].values())] = number
        result: dict[str, Any] = dict(it.configuration)
        if it.seconds is None:
            error = getattr(util, _ERRORS.get(it.status, "RuntimeFailedConfig"))()
            result |= {"time": error, "__error__": error}
        else:
            result["time"] = 1e3 * it.seconds
        results.append(result)
    parameters = {it.name: list(it.values) for it in recorded.parameters}
    made = _searchspace_class()(
        None, None, None, from_cache={"tune_params": parameters, "cache": known}
    )
    made.shared_neighbours = {}
    # Tables that every run would make for itself.
    made.get_list_param_indices_numpy()
    return made, results, places


def _prepared(recorded: RecordedSpace) -> tuple[Any, list[dict[str, Any]], Places]:
    """The lookups of :func:`_lookups`, with a search space that has seen no run."""
    template, results, places = _lookups(recorded)
    space = copy.copy(template)
    for name, value in vars(template).items():
        # What a run remembers; the lists of neighbours behind it are shared.
        if name.endswith(("neighbor_cache", "neighbor_partial_cache", "neighbors_index")):
            setattr(space, name, copy.deepcopy(value))
    return space, results, places


def _tuning_options(searchspace: Any, recorded: RecordedSpace, options: Mapping[str, Any]) -> Any:
    """Options that ``tune_kernel`` hands to a strategy."""
    made = _module("interface").Options
    return made(
        {
            "tune_params": {it.name: list(it.values) for it in recorded.parameters},
            "restrictions": [],
            "strategy_options": made(options),
            "objective": ["time"],
            "objective_higher_is_better": [False],
            "max_fevals": options["max_fevals"],
            "time_limit": None,
            "metrics": None,
            "verbose": False,
            "cache": {},
            "cachefile": None,
            "simulated_time": 0,
        }
    )


@cache
def _runner_class() -> Any:
    """A runner of Kernel Tuner that looks configurations up."""
    base = _module("runners.runner").Runner
    util = _module("util")

    class Lookup(base):  # type: ignore[misc, valid-type]
        """Answers from the records, and counts what was not asked for before."""

        def __init__(
            self,
            recorded: RecordedSpace,
            results: list[dict[str, Any]],
            places: Places,
            ledger: Ledger,
            clock: Callable[[], float],
        ) -> None:
            super().__init__()
            self.recorded, self.results, self.places = recorded, results, places
            self.ledger, self.clock = ledger, clock
            self.seen: set[int] = set()
            self.calls = 0
            self.spent = 0.0

        def get_device_info(self) -> Any:
            raise InvalidValueError("a replayed space has no device")

        def get_environment(self, tuning_options: Any) -> dict[str, Any]:
            return {"device_name": self.recorded.name, "simulation": True}

        def run(self, parameter_space: Sequence[Any], tuning_options: Any) -> list[Any]:
            began = self.clock()
            found = [self.look_up(tuple(it), tuning_options.budget) for it in parameter_space]
            self.spent += self.clock() - began
            return found

        def look_up(self, element: tuple[Any, ...], budget: Any) -> dict[str, Any] | None:
            """The result of a configuration; None where the budget is used up."""
            self.calls += 1
            if budget.is_done() or self.ledger.left <= 0:
                return None
            if self.calls > _CALLS_PER_EVALUATION * self.ledger.budget.evaluations:
                # It would look at what it knows for ever.
                raise util.StopCriterionReached("no new configuration")
            place = self.places.get(element)
            if place is None:
                names = [parameter.name for parameter in self.recorded.parameters]
                values = dict(zip(names, element, strict=True))
                return {**values, "__error__": util.InvalidConfig()}
            if place not in self.seen:
                seconds, cost = self.recorded.seconds[place], self.recorded.costs[place]
                if not self.ledger.take(float(seconds), float(cost)):
                    return None
                self.seen.add(place)
                budget.add_evaluations(1)
            return dict(self.results[place])

    return Lookup


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The generators of the process with this seed, and as they were afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)

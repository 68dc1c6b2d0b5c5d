"""Strategies of this library in Kernel Tuner: ``tune_kernel(..., strategy=...)``.

Written for kernel-tuner 1.5.0, whose interface of a strategy is an object with ``tune``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.errors import InvalidValueError
from autotune.external.ask_tell import DEFAULT_STRATEGY, AskTell
from autotune.external.hooks.packages import check_count, load
from autotune.spaces.parameters import Value

__all__ = ["KernelTunerStrategy"]

_FAILED = sys.float_info.max
"""Kernel Tuner's cost of a configuration that does not compile or run."""


class KernelTunerStrategy:
    """A strategy of this library as one of Kernel Tuner.

    It proposes configurations of Kernel Tuner's own search space, restrictions included; Kernel
    Tuner compiles, times, caches and counts them. Of ``strategy_options`` it knows ``max_fevals``,
    ``time_limit``, ``searchspace_construction_options`` and ``x0``, a configuration to start from.

    Args:
        strategy: Name of a strategy that needs no loop nest.
        options: Its options.
        seed: Of everything that is random.
        batch: Configurations that are asked for at once.
    """

    def __init__(
        self,
        strategy: str = DEFAULT_STRATEGY,
        options: Mapping[str, Any] | None = None,
        *,
        seed: int = 0,
        batch: int = 1,
    ) -> None:
        check_count("batch", batch)
        self._strategy, self._options = strategy, dict(options or {})
        self._seed, self._batch = seed, batch

    def tune(self, searchspace: Any, runner: Any, tuning_options: Any) -> list[dict[str, Any]]:
        """Called by Kernel Tuner; returns the results of the configurations that were evaluated.

        Raises:
            InvalidValueError: it is about several objectives, the strategy needs a loop nest, an
                option is unknown, or an objective that is to be low is not positive.
            UnknownNameError: there is no such strategy.
        """
        common = load("kernel_tuner.strategies.common", "kernel-tuner", "1.5.0")
        util = load("kernel_tuner.util", "kernel-tuner", "1.5.0")
        given = tuning_options.strategy_options
        try:
            common.get_options(given, {})
        except ValueError as error:
            raise InvalidValueError(
                f"strategy {self._strategy!r} in Kernel Tuner: {error}"
            ) from None
        if len(tuning_options.objective) != 1:
            raise InvalidValueError(
                f"one objective is searched for, not {len(tuning_options.objective)}: "
                f"{', '.join(map(str, tuning_options.objective))}"
            )
        search, rows = self._search(searchspace)
        if given.get("x0"):
            search.seed([_config(searchspace.param_names, given["x0"])])
        costs = common.CostFunc(searchspace, tuning_options, runner, snap=False)
        try:
            while proposals := search.ask(self._batch):
                found = [rows[_key(proposal.config)] for proposal in proposals]
                values = costs.eval_all(found, check_restrictions=False)
                for proposal, cost in zip(proposals, values, strict=True):
                    self._tell(search, proposal.id, cost, tuning_options)
        except util.StopCriterionReached:
            pass  # the budget is spent
        results: list[dict[str, Any]] = costs.results
        return results

    def _search(self, searchspace: Any) -> tuple[AskTell, dict[tuple[object, ...], Any]]:
        """A search in Kernel Tuner's space, and its own form of every configuration."""
        names = list(searchspace.param_names)
        parameters = {
            name: [_plain(value) for value in values]
            for name, values in searchspace.tune_params.items()
        }
        configs = [_config(names, row) for row in searchspace.list]
        search = AskTell(
            parameters,
            strategy=self._strategy,
            options=self._options,
            seed=self._seed,
            configs=configs,
            program="kernel_tuner",
        )
        rows = {_key(config): row for config, row in zip(configs, searchspace.list, strict=True)}
        return search, rows

    def _tell(self, search: AskTell, number: int, cost: float, tuning_options: Any) -> None:
        """Pass on a cost, which is negative where more is better."""
        if cost == _FAILED or not math.isfinite(cost):
            search.tell(number, failed="it did not compile or run")
            return
        is_high_better = tuning_options.objective_higher_is_better[0]
        value = -cost if is_high_better else cost
        if value <= 0:
            raise InvalidValueError(
                f"objective {tuning_options.objective[0]!r} is {value!r}; only positive ones are "
                "searched for"
            )
        search.tell(number, seconds=1.0 / value if is_high_better else value)


def _config(names: Sequence[str], row: Sequence[Any]) -> dict[str, Value]:
    return {name: _plain(value) for name, value in zip(names, row, strict=True)}


def _key(config: Mapping[str, Value]) -> tuple[object, ...]:
    return tuple(config.values())


def _plain(value: Any) -> Any:
    """A value without numpy's type."""
    return value.item() if isinstance(value, np.generic) else value

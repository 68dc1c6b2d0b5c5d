"""Contestants of a replay: strategies with models that know the space, or why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import field, frozen

from autotune.errors import AutotuneError
from autotune.evaluation.replay.recorded import OutcomeTable
from autotune.evaluation.replay.runs import Budget, Ledger, Replay
from autotune.models import ModelContext
from autotune.models.cost import CostModel
from autotune.models.pruning import PruningModel
from autotune.plugins.manager import manager
from autotune.plugins.parts import check_part, create_part
from autotune.plugins.spec import PluginSpec
from autotune.search.guarded_calls import asked_of, calling
from autotune.search.strategies import Strategy, StrategyContext
from autotune.tuning.options import KINDS, unused_by

__all__ = ["Contestant", "refusal", "replay", "strategy_names"]

Clock = Callable[[], float]
RANDOM = "random"


@frozen
class Contestant:
    """A strategy to be replayed.

    Attributes:
        name: A registered name, or an import string.
        options: Options of it.
    """

    name: str
    options: Mapping[str, Any] = field(factory=dict, hash=False)

    @property
    def label(self) -> str:
        """Name and options, as runs are told apart."""
        given = [f"{name}={value}" for name, value in sorted(self.options.items())]
        return f"{self.name}[{','.join(given)}]" if given else self.name


def strategy_names() -> tuple[str, ...]:
    """Every registered strategy."""
    return tuple(manager().names("strategy"))


def refusal(contestant: Contestant, table: OutcomeTable) -> str:
    """Say why a strategy of the library cannot be replayed against a space; "" where it can.

    Raises:
        UnknownNameError: there is no such strategy.
    """
    check_part("strategy", contestant.name)
    spec = _spec("strategy", contestant.name)
    if spec is not None and spec.reads_nest and not table.has_nest:
        return "it reads symbolic loop nests, and configurations that were recorded have none"
    try:
        make_strategy(contestant, table, 0)
    except AutotuneError as error:
        return str(error)
    return ""


def make_strategy(
    contestant: Contestant, table: OutcomeTable, seed: int
) -> tuple[Strategy, CostModel]:
    """The strategy for a space, and the cost model that learns what it learns.

    Raises:
        AutotuneError: an option is wrong, or the strategy cannot work in the space.
    """
    strategy_seed, model_seed = np.random.SeedSequence(seed).spawn(2)
    cost_model, pruning_model = _models(contestant.name, table, _integer(model_seed))
    context = StrategyContext(
        space=table.space,
        rng=np.random.default_rng(strategy_seed),
        cost_model=cost_model,
        pruning_model=pruning_model,
        options=contestant.options,
    )
    strategy: Strategy = create_part("strategy", contestant.name, context)
    return strategy, cost_model


def replay(
    contestant: Contestant, table: OutcomeTable, seed: int, budget: Budget, clock: Clock
) -> Replay:
    """Run a strategy of the library against a space, on a virtual clock.

    Args:
        contestant: The strategy.
        table: The space.
        seed: Of its generator, and of its models.
        budget: What it may use; never more than the space has.
        clock: Processor time of this process, in seconds.

    Raises:
        AutotuneError: the strategy cannot work in the space, or breaks its contract.
    """
    began = clock()
    strategy, cost_model = make_strategy(contestant, table, seed)
    spent = clock() - began
    ledger = Ledger(budget)
    seconds, costs = table.seconds, table.costs
    while ledger.left > 0:
        asking = clock()
        asked = asked_of(strategy, min(budget.round_size, ledger.left))
        spent += clock() - asking
        if not asked:
            break
        told = []
        for candidate in asked:
            place = table.place(candidate)
            if not ledger.take(float(seconds[place]), float(costs[place])):
                break
            told.append((candidate, table.outcomes[place]))
        telling = clock()
        with calling(strategy, "tell"):
            strategy.tell(told)
        cost_model.update(told)
        spent += clock() - telling
    named = (table.name, table.digest, contestant.label, seed)
    return ledger.run(named, spent, clock() - began - spent, "exhausted")


def _models(
    strategy: str, table: OutcomeTable, seed: int
) -> tuple[CostModel, PruningModel | None]:
    """The models of a run: the usual ones where they know its candidates.

    Where a space has no nests, a cost model that needs them is replaced by random scores, and
    there is no pruning model.
    """
    spec = _spec("strategy", strategy)
    unused = unused_by(strategy)
    name = KINDS["cost_model"] if spec is None else spec.default_cost_model or KINDS["cost_model"]
    model = _spec("cost_model", name)
    knows = table.has_nest or not (model is None or model.reads_nest)
    if "cost_model" in unused or not knows:
        name = RANDOM
    common: dict[str, Any] = {"seed": seed}
    if table.target is not None:
        common["target"] = table.target
    cost_model: CostModel = create_part("cost_model", name, ModelContext(**common))
    pruning_model: PruningModel | None = None
    if table.has_nest and "pruning_model" not in unused:
        pruning_model = create_part(
            "pruning_model", KINDS["pruning_model"], ModelContext(**common)
        )
    return cost_model, pruning_model


def _spec(kind: str, name: str) -> PluginSpec | None:
    return None if ":" in name else manager().get(kind, name)


def _integer(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1, np.uint32)[0])

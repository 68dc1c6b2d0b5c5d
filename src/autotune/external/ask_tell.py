"""The search without the measuring: the caller asks for configurations and tells their times."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define, field, frozen

from autotune.errors import InvalidValueError, PluginError
from autotune.external.program import broken_constraint, parameters_of
from autotune.ir.converter import JsonForm
from autotune.models import ModelContext
from autotune.models.cost import CostModel
from autotune.plugins.parts import create_part
from autotune.search.guarded_calls import asked_of, calling, state_of
from autotune.search.strategies import Strategy, StrategyContext
from autotune.sketches import Candidate, CandidateBatch
from autotune.spaces.parameters import (
    Parameter,
    ParameterSpace,
    Value,
    encode_config,
    parameter_space,
    recorded_space,
)
from autotune.store.records import Outcome
from autotune.tuning.options import chosen_parts

__all__ = ["AskTell", "DEFAULT_STRATEGY", "Proposal", "Trial", "space_of"]

DEFAULT_STRATEGY = "auto"
"""The strategy where none is named."""
_STATE_VERSION = 1


@frozen
class Proposal:
    """A configuration to be measured.

    Attributes:
        id: Counts the configurations of a search from 0.
        config: The value of each parameter by name.
    """

    id: int
    config: Mapping[str, Value] = field(hash=False)


@frozen
class Trial:
    """A configuration that was measured.

    Attributes:
        id: That of its proposal.
        config: The value of each parameter by name.
        outcome: What it took in seconds, or why it failed.
    """

    id: int
    config: Mapping[str, Value] = field(hash=False)
    outcome: Outcome = field(hash=False)

    @property
    def seconds(self) -> float | None:
        """Seconds of the run; None where it failed."""
        return self.outcome.latency


@define
class _Entry(JsonForm):
    """A configuration that has a number.

    Attributes:
        config: The value of each parameter by name.
        outcome: None until the caller gives it.
        asked: Whether the strategy proposed it, and not the user alone.
    """

    config: Mapping[str, Any]
    outcome: Outcome | None = None
    asked: bool = False


@frozen
class _State(JsonForm):
    """All of a search."""

    version: int
    program: str
    parameters: tuple[Mapping[str, Any], ...]
    constraints: tuple[str, ...]
    configs: tuple[Mapping[str, Any], ...] | None
    strategy: str
    options: Mapping[str, Any]
    seed: int
    entries: tuple[_Entry, ...]
    undelivered: tuple[int, ...]
    waiting: tuple[Mapping[str, Any], ...]
    strategy_state: Mapping[str, Any]
    model_state: Mapping[str, Any]


class AskTell:
    """A search for the fastest configuration that its user drives::

        search = AskTell({"block": [16, 32, 64], "warps": [1, 2, 4]}, ["block * warps <= 128"])
        while proposals := search.ask(4):
            for proposal in proposals:
                search.tell(proposal, seconds=measure(proposal.config))
        print(search.best)

    Several proposals may be outstanding. Results reach the strategy at the next ``ask``, in the
    order of the proposals: with the same results, one seed gives the same proposals,
    whichever result comes first, in any process.

    Args:
        parameters: Values by name, or parameters.
        constraints: Expressions that hold for every configuration, such as ``"a * b <= 64"``;
            nothing in them is executed.
        strategy: Name of a strategy that needs no loop nest, or ``"module:attribute"``.
        options: Options of the strategy.
        seed: Of everything that is random.
        configs: The configurations that there are, where they are a list and not all those that
            satisfy constraints.
        program: What is tuned, for messages and records.

    Raises:
        InvalidValueError: a parameter or a constraint is wrong, nothing satisfies the constraints,
            or the strategy needs a loop nest.
        UnknownNameError: there is no such strategy.
    """

    def __init__(
        self,
        parameters: Mapping[str, Sequence[Value]] | Sequence[Parameter],
        constraints: Sequence[str] = (),
        *,
        strategy: str = DEFAULT_STRATEGY,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        configs: Sequence[Mapping[str, Value]] | None = None,
        program: str = "external",
    ) -> None:
        known = parameters_of(parameters)
        if isinstance(constraints, str):
            raise InvalidValueError(
                f"constraints are a list of texts, not the text {constraints!r}"
            )
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise InvalidValueError(f"a seed is a whole number from 0, not {seed!r}")
        self._constraints = tuple(constraints)
        self._configs = None if configs is None else tuple(map(dict, configs))
        self.space = space_of(program, known, self._constraints, self._configs)
        self._program = program
        self._name, self._options = strategy, dict(options or {})
        self._seed = seed
        self._cost_model, self._strategy = _parts(self.space, strategy, self._options, seed)
        self._entries: list[_Entry] = []
        self._ids: dict[tuple[int, ...], int] = {}
        self._waiting: deque[Candidate] = deque()
        self._undelivered: set[int] = set()

    @property
    def count(self) -> int:
        """Number of configurations."""
        return self.space.count()

    @property
    def seen(self) -> tuple[Trial, ...]:
        """Everything that was told, in the order of the proposals."""
        return tuple(it for it in map(self._trial, range(len(self._entries))) if it is not None)

    @property
    def pending(self) -> tuple[Proposal, ...]:
        """The proposals that wait for their results."""
        found = enumerate(self._entries)
        return tuple(self._proposal(at) for at, it in found if it.outcome is None)

    @property
    def best(self) -> Trial | None:
        """The fastest trial, the first of equals; None where none has succeeded."""
        valid = [trial for trial in self.seen if trial.seconds is not None]
        return min(valid, key=lambda trial: trial.seconds or 0.0, default=None)

    def ask(self, n: int = 1) -> list[Proposal]:
        """Up to ``n`` configurations that were not proposed before.

        Fewer, or none, where the strategy has no more: all of the space was proposed, or it waits
        for results.

        Raises:
            InvalidValueError: ``n`` is no number of configurations.
            PluginError: the strategy fails, or proposes a configuration twice.
        """
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise InvalidValueError(f"cannot ask for {n!r} configurations")
        found: list[Proposal] = []
        while self._waiting and len(found) < n:
            candidate = self._waiting.popleft()
            if candidate.values not in self._ids:
                found.append(self._proposal(self._number(candidate)))
        if len(found) < n:
            self._deliver()
        while len(found) < n and (asked := asked_of(self._strategy, n - len(found))):
            found += [self._proposal(it) for it in map(self._take, asked) if it is not None]
        return found

    def tell(
        self,
        proposal: Proposal | int,
        seconds: float | None = None,
        *,
        failed: str | None = None,
    ) -> Trial:
        """Say what a proposal took, or why it failed.

        Args:
            proposal: It, or its id.
            seconds: What it took.
            failed: What went wrong, in place of the seconds.

        Raises:
            InvalidValueError: there is no such proposal, it was told before, or the result is not
                either positive seconds or a message.
        """
        number = proposal.id if isinstance(proposal, Proposal) else proposal
        self._check_number(number)
        if isinstance(proposal, Proposal) and proposal != self._proposal(number):
            raise InvalidValueError(
                f"proposal {number} is {dict(self._proposal(number).config)} in this search, not "
                f"{dict(proposal.config)}: it is one of another search"
            )
        return self._note(number, _outcome(seconds, failed))

    def seed(self, configs: Iterable[Mapping[str, Value]]) -> None:
        """Have configurations proposed before all others, unless they were proposed already.

        Raises:
            InvalidValueError: one is not in the space; says why.
        """
        self._waiting.extend([self._candidate(config) for config in configs])

    def learn(
        self,
        config: Mapping[str, Value],
        seconds: float | None = None,
        *,
        failed: str | None = None,
    ) -> Trial:
        """Say what a configuration took that was not proposed, as in an earlier search.

        The strategy learns from it, it is not proposed any more, and may be the best.

        Raises:
            InvalidValueError: it is not in the space, was told before, or the result is none.
        """
        candidate = self._candidate(config)
        outcome = _outcome(seconds, failed)
        number = self._ids.get(candidate.values)
        return self._note(self._number(candidate) if number is None else number, outcome)

    def state(self) -> dict[str, Any]:
        """A JSON object from which :meth:`from_state` continues as this search would.

        Raises:
            PluginError: the strategy has no state that is JSON.
        """
        parameters = [
            {"name": it.name, "values": list(it.values), "default": it.default}
            for it in self.space.parameters
        ]
        return _State(
            version=_STATE_VERSION,
            program=self._program,
            parameters=tuple(parameters),
            constraints=self._constraints,
            configs=self._configs,
            strategy=self._name,
            options=self._options,
            seed=self._seed,
            entries=tuple(self._entries),
            undelivered=tuple(sorted(self._undelivered)),
            waiting=tuple(map(self.space.decode, self._waiting)),
            strategy_state=state_of(self._strategy),
            model_state=self._cost_model.state(),
        ).to_json()

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> AskTell:
        """The search that :meth:`state` described.

        Only registered strategies are looked up from a state; nothing that it names is imported.

        Raises:
            InvalidValueError: it is no such state, or one of another version.
            UnknownNameError: its strategy is not installed.
        """
        saved = _State.from_json(state)
        if saved.version != _STATE_VERSION:
            raise InvalidValueError(
                f"a search of version {saved.version}; this version reads {_STATE_VERSION}"
            )
        if ":" in saved.strategy:
            raise InvalidValueError(
                f"the state names strategy {saved.strategy!r}, which no plugin registers: states "
                "are read for strategies of installed plugins only"
            )
        search = cls(
            [_parameter(it) for it in saved.parameters],
            saved.constraints,
            strategy=saved.strategy,
            options=saved.options,
            seed=saved.seed,
            configs=saved.configs,
            program=saved.program,
        )
        for entry in saved.entries:
            candidate = search._candidate(entry.config)
            search._number(candidate, outcome=entry.outcome, asked=entry.asked)
        for number in saved.undelivered:
            search._check_number(number)
        search._undelivered = set(saved.undelivered)
        search.seed(saved.waiting)
        with calling(search._strategy, "load_state"):
            search._strategy.load_state(dict(saved.strategy_state))
        search._cost_model.load_state(dict(saved.model_state))
        return search

    def _proposal(self, number: int) -> Proposal:
        return Proposal(number, dict(self._entries[number].config))

    def _trial(self, number: int) -> Trial | None:
        config, outcome = self._entries[number].config, self._entries[number].outcome
        return None if outcome is None else Trial(number, dict(config), outcome)

    def _check_number(self, number: object) -> None:
        is_number = isinstance(number, int) and not isinstance(number, bool)
        if is_number and number in range(len(self._entries)):
            return
        waiting = ", ".join(str(it.id) for it in self.pending[:8]) or "none"
        raise InvalidValueError(f"there is no proposal {number!r}; those that wait are: {waiting}")

    def _note(self, number: int, outcome: Outcome) -> Trial:
        """Note the result of a configuration, once."""
        entry = self._entries[number]
        if entry.outcome is not None:
            raise InvalidValueError(f"proposal {number} was told before: {_brief(entry.outcome)}")
        entry.outcome = outcome
        self._undelivered.add(number)
        return Trial(number, dict(entry.config), outcome)

    def _number(self, candidate: Candidate, **known: Any) -> int:
        """Give a configuration the next number."""
        number = self._ids.setdefault(candidate.values, len(self._entries))
        if number < len(self._entries):
            raise InvalidValueError(f"configuration {candidate.config} is there twice")
        self._entries.append(_Entry(self.space.decode(candidate), **known))
        return number

    def _take(self, candidate: Candidate) -> int | None:
        """The number of what the strategy proposes; None where the user proposed or told it."""
        number = self._ids.get(candidate.values)
        if number is None:
            return self._number(candidate, asked=True)
        entry = self._entries[number]
        if entry.asked:
            raise PluginError(f"strategy {self._name!r} proposed {entry.config} a second time")
        entry.asked = True
        if entry.outcome is not None:
            # It listens to what it asked for only.
            with calling(self._strategy, "tell"):
                self._strategy.tell([(candidate, entry.outcome)])
        return None

    def _deliver(self) -> None:
        """Pass on what was told since the last time."""
        told = [self._entries[number] for number in sorted(self._undelivered)]
        pairs = [(self.space.encode(it.config), it.outcome) for it in told if it.outcome]
        if not pairs:
            return
        with calling(self._strategy, "tell"):
            self._strategy.tell(pairs)
        self._cost_model.update(pairs)
        self._undelivered.clear()

    def _candidate(self, config: Mapping[str, Value]) -> Candidate:
        candidate = self.space.encode(config)
        if not self.space.contains(CandidateBatch.of([candidate]))[0]:
            raise InvalidValueError(
                f"configuration {dict(config)} is not in the space: {self._reason(config)}"
            )
        return candidate

    def _reason(self, config: Mapping[str, Value]) -> str:
        broken = broken_constraint(self._constraints, config)
        if broken is not None:
            return f"it violates {broken!r}"
        return f"it is none of the {self.count} that there are"


def _outcome(seconds: object, failed: object) -> Outcome:
    if (seconds is None) == (failed is None):
        raise InvalidValueError(
            f"a result is either seconds or what failed, not {seconds!r} and {failed!r}"
        )
    if failed is not None:
        if not isinstance(failed, str):
            raise InvalidValueError(f"what failed is a text, not {failed!r}")
        return Outcome("invalid", message=failed)
    is_number = isinstance(seconds, (int, float, np.integer, np.floating))
    if isinstance(seconds, bool) or not is_number:
        raise InvalidValueError(f"seconds are a number, not {seconds!r}")
    taken = float(seconds)  # type: ignore[arg-type]
    if not math.isfinite(taken) or taken <= 0:
        raise InvalidValueError(
            f"seconds are positive and finite, not {taken!r}; say failed='...' for what failed"
        )
    return Outcome("ok", taken, (taken,))


def _brief(outcome: Outcome) -> str:
    return f"{outcome.latency!r} s" if outcome.ok else f"failed, {outcome.message!r}"


def _parameter(data: Mapping[str, Any]) -> Parameter:
    try:
        return Parameter(data["name"], tuple(data["values"]), data["default"])
    except (KeyError, TypeError) as error:
        raise InvalidValueError(f"not a parameter: {dict(data)}: {error!r}") from None


def space_of(
    program: str,
    parameters: Sequence[Parameter],
    constraints: Sequence[str] = (),
    configs: Sequence[Mapping[str, Value]] | None = None,
) -> ParameterSpace:
    """The configurations that satisfy constraints, or those that are given."""
    if configs is None:
        return parameter_space(program, parameters, constraints)
    if constraints:
        raise InvalidValueError("give constraints, or the configurations that there are, not both")
    rows = [encode_config(parameters, config) for config in configs]
    return recorded_space(program, parameters, np.array(rows, dtype=np.int64))


def _parts(
    space: ParameterSpace, name: str, options: Mapping[str, Any], seed: int
) -> tuple[CostModel, Strategy]:
    """A strategy, and the cost model that it asks, as a run on parameters has them."""
    parts = chosen_parts({"search_space": space.name, "strategy": (name, options)}, {})
    strategy, model = parts["strategy"], parts["cost_model"]
    cost_model: CostModel = create_part(
        "cost_model", "random" if model.is_none else model.name, ModelContext(seed=seed)
    )
    context = StrategyContext(
        space=space,
        rng=np.random.default_rng(seed),
        cost_model=cost_model,
        options=strategy.options,
    )
    return cost_model, create_part("strategy", name, context)

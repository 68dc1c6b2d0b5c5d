"""The search: proposes candidates and learns from outcomes, by task and round."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from autotune.errors import DatabaseError, InvalidValueError, PluginError
from autotune.models.cost import CostModel, Observation
from autotune.process.stopwatch import Stopwatch
from autotune.search.guarded_calls import asked_of, calling, state_of
from autotune.search.schedulers import TaskScheduler
from autotune.search.strategies import Strategy
from autotune.sketches import Candidate, Sketch
from autotune.spaces import SearchSpace
from autotune.spaces.transfer import moved_candidate
from autotune.store.records import Outcome

__all__ = ["PER_LANE", "Round", "Search", "Window"]

MOST_LEADERS = 8
"""Candidates of a task that others may begin with."""

Leaders = list[tuple[float, Candidate]]
"""Latencies in seconds and candidates, the fastest first."""


@frozen(eq=False)
class Round:
    """Candidates of one task that were proposed together."""

    task: int
    asked: Sequence[Candidate]


class Search:
    """Task scheduler, strategies and cost model of a run.

    A round may be proposed while another is outstanding, that is before its outcomes are known:
    its candidates are built while the search continues.

    What a strategy is asked for first may be measured in several rounds, so that every task soon
    has some candidate, and the scheduler something to go by. Each of these rounds has as many as
    all rounds of the task before it. The strategy proposes what it would without them.

    Seeds come before what the strategy proposes first, which does not depend on them: at worst a
    run is behind one without seeds by as many trials.

    Args:
        spaces: The search space of each task.
        strategies: The strategy of each task.
        cost_models: The cost model of each task, which tasks may share.
        scheduler: Chooses the task of each round.
        round_size: Candidates that are asked for at once.
        watch: Time of the run.
        first_round: Candidates in a task's first round; None for ``round_size``.

    Attributes:
        rounds: How many have been learnt from.
        lanes: How many machines time, when this was last looked up: a round that waits for its
            last candidate has some for each of them. Part of the state, so that a run that is
            continued with other machines proposes the same round again.
    """

    def __init__(
        self,
        spaces: Sequence[SearchSpace],
        strategies: Sequence[Strategy],
        cost_models: Sequence[CostModel],
        scheduler: TaskScheduler,
        round_size: int,
        watch: Stopwatch,
        first_round: int | None = None,
    ) -> None:
        self._spaces = spaces
        self._strategies = strategies
        self._cost_models = cost_models
        self._models = list({id(model): model for model in cost_models}.values())
        self._scheduler = scheduler
        self._round_size = round_size
        self._first_round = first_round or round_size
        # Candidates of each task in its rounds so far, and those that wait for the next ones.
        self._proposed = [0] * len(strategies)
        self._waiting: list[list[Candidate]] = [[] for _ in strategies]
        # Digests of each task's seeds, which its strategy may propose, too.
        self._seeds: list[frozenset[str]] = [frozenset() for _ in strategies]
        # Where the scheduler lets tasks begin with what others have found: the best of these.
        with calling(scheduler, "source"):
            sources = [scheduler.source(task) for task in range(len(strategies))]
        self._leaders: dict[int, Leaders] = {it: [] for it in sources if it is not None}
        self._watch = watch
        self.rounds = 0
        self.lanes = 1

    def begin_with(
        self, task: int, seeds: Sequence[Candidate], training: Sequence[Observation]
    ) -> None:
        """Give a task something to begin with, before anything is proposed.

        Args:
            task: The task.
            seeds: Candidates to propose first. One whose sketch is not of the task's space is
                told to no strategy and no model.
            training: Outcomes of other tasks' candidates, for the task's cost model.
        """
        self._set_seeds(task, seeds)
        if training:
            with self._watch.timing("model"):
                self._cost_models[task].update(training)

    def propose(
        self,
        outstanding: Sequence[int],
        given_up: Callable[[int], bool],
        best_latency: Callable[[int], float | None],
        *,
        is_waited_for: bool = True,
    ) -> Round | None:
        """The next round; None when no task has one, or none before the outstanding is learnt.

        Args:
            outstanding: Tasks of the rounds whose outcomes are not known yet.
            given_up: Whether a task gets no more rounds.
            best_latency: Best latency of a task so far, in seconds.
            is_waited_for: Whether the search waits for the last candidate of the round.
        """
        least = PER_LANE * self.lanes if is_waited_for and self.lanes > 1 else 0
        with self._watch.timing("search"):
            while True:
                with calling(self._scheduler, "next_task"):
                    task = self._scheduler.next_task(outstanding)
                if task is None:
                    return None
                self._check_task(task)
                asked = [] if given_up(task) else self._next_candidates(task, least)
                if asked:
                    return Round(task, asked)
                if task in outstanding:
                    return None
                with calling(self._scheduler, "tell"):
                    self._scheduler.tell(task, best_latency(task), 0)

    def _next_candidates(self, task: int, least: int) -> list[Candidate]:
        """The candidates of a task's next round; none when it is exhausted."""
        self._diffuse_to(task)
        with calling(self._scheduler, "round_size"):
            size = self._scheduler.round_size(task, self._round_size)
        size = max(size, least)
        waiting = self._waiting[task]
        if not waiting or not self._proposed[task]:
            # Before it knows of seeds, a strategy proposes what it would without them: a draft
            # model may know better.
            waiting = [*waiting, *self._asked_anew(task, size)]
        # What others begin with is to be worth it: a source has whole rounds from the beginning.
        size = max(self._first_round, self._proposed[task], least)
        if task in self._leaders:
            size = self._round_size
        self._waiting[task] = waiting[size:]
        self._proposed[task] += len(waiting[:size])
        return waiting[:size]

    def _asked_anew(self, task: int, size: int) -> list[Candidate]:
        """Ask a strategy without seeds: it may ignore what it was told of these."""
        seeds = self._seeds[task]
        for _ in range(len(seeds) + 1):
            asked = asked_of(self._strategies[task], size)
            new = [candidate for candidate in asked if candidate.digest not in seeds]
            if new or not asked:
                return new
        return []

    def _diffuse_to(self, task: int) -> None:
        """Let a task that has not begun begin with the best of its source, if it has one."""
        with calling(self._scheduler, "source"):
            source = self._scheduler.source(task)
        if source is None or self._proposed[task]:
            return
        seeds = {candidate.digest: candidate for candidate in self._waiting[task]}
        for _, candidate in self._leaders[source][: self._round_size // 2]:
            moved = moved_candidate(candidate, self._spaces[task])
            if moved is not None:
                seeds.setdefault(moved.digest, moved)
        self._set_seeds(task, list(seeds.values()))

    def _set_seeds(self, task: int, seeds: Sequence[Candidate]) -> None:
        self._waiting[task] = list(seeds)
        self._seeds[task] = frozenset(candidate.digest for candidate in seeds)

    def _note_leaders(self, task: int, pairs: Sequence[Observation]) -> None:
        if task in self._leaders:
            valid = [(it.latency, candidate) for candidate, it in pairs if it.latency is not None]
            leaders = [*self._leaders[task], *valid]
            self._leaders[task] = sorted(leaders, key=lambda pair: pair[0])[:MOST_LEADERS]

    def _check_task(self, task: object) -> None:
        """Raise ``PluginError`` unless it is the number of a task."""
        if task not in range(len(self._strategies)):
            raise PluginError(
                f"scheduler {self._scheduler.name!r} returned {task!r} from next_task(); "
                f"tasks are numbered from 0 to {len(self._strategies) - 1}"
            )

    def learn(
        self, done: Round, outcomes: Sequence[Outcome], best_latency: float | None, gone: bool
    ) -> None:
        """Pass a complete round to scheduler, strategies and models.

        Args:
            done: The round.
            outcomes: Its outcomes, in order.
            best_latency: Best latency of the task so far, in seconds.
            gone: Whether the task gets no more rounds.
        """
        known = self._positions(done.task)
        pairs = [
            (candidate, outcome)
            for candidate, outcome in zip(done.asked, outcomes, strict=True)
            if candidate.sketch.digest in known
        ]
        self._note_leaders(done.task, pairs)
        strategy = self._strategies[done.task]
        with self._watch.timing("search"), calling(strategy, "tell"):
            strategy.tell(pairs)
        with self._watch.timing("model"):
            self._cost_models[done.task].update(pairs)
        with self._watch.timing("search"), calling(self._scheduler, "tell"):
            self._scheduler.tell(done.task, best_latency, 0 if gone else len(outcomes))
        self.rounds += 1

    def state(self, trials: Sequence[int], outstanding: Round | None) -> dict[str, Any]:
        """A JSON object that :meth:`load_state` continues from.

        Args:
            trials: Trials of each task that have been learnt from.
            outstanding: A round that was proposed and not learnt from.
        """
        return {
            "rounds": self.rounds,
            **({"lanes": self.lanes} if self.lanes > 1 else {}),
            "trials": list(trials),
            "scheduler": state_of(self._scheduler),
            "cost_model": self._models[0].state(),
            "other_cost_models": [model.state() for model in self._models[1:]],
            "strategies": [state_of(strategy) for strategy in self._strategies],
            "outstanding": outstanding and self._round_to_json(outstanding),
            "proposed": list(self._proposed),
            "waiting": [
                self._round_to_json(Round(task, waiting))
                for task, waiting in enumerate(self._waiting)
                if waiting
            ],
            **self._leaders_to_json(),
            **self._seeds_to_json(),
        }

    def load_state(self, state: Mapping[str, Any]) -> Round | None:
        """Restore what :meth:`state` returned; returns the round that was outstanding.

        Raises:
            DatabaseError: the round is not one of these spaces.
        """
        self.rounds = int(state["rounds"])
        self.lanes = int(state.get("lanes", 1))
        with calling(self._scheduler, "load_state"):
            self._scheduler.load_state(dict(state["scheduler"]))
        # A state of an earlier version has one model only.
        saved_models = [state["cost_model"], *state.get("other_cost_models", [])]
        for model, saved in zip(self._models, saved_models, strict=True):
            model.load_state(dict(saved))
        for strategy, saved in zip(self._strategies, state["strategies"], strict=True):
            with calling(strategy, "load_state"):
                strategy.load_state(dict(saved))
        # In a state of an earlier version all rounds are whole.
        self._proposed = [int(n) for n in state.get("proposed", state["trials"])]
        for waiting in state.get("waiting", ()):
            round_ = self._round_from_json(waiting)
            self._waiting[round_.task] = list(round_.asked)
        for task, digests in state.get("seeds", ()):
            self._seeds[task] = frozenset(digests)
        for saved in state.get("leaders", ()):
            latencies, round_ = saved[0], self._round_from_json(saved[1])
            self._leaders[round_.task] = list(zip(latencies, round_.asked, strict=True))
        outstanding = state["outstanding"]
        return None if outstanding is None else self._round_from_json(outstanding)

    def _seeds_to_json(self) -> dict[str, Any]:
        seeds = [[task, sorted(digests)] for task, digests in enumerate(self._seeds) if digests]
        return {"seeds": seeds} if seeds else {}

    def _leaders_to_json(self) -> dict[str, Any]:
        leaders = [
            [
                [latency for latency, _ in found],
                self._round_to_json(Round(task, [candidate for _, candidate in found])),
            ]
            for task, found in self._leaders.items()
            if found
        ]
        return {"leaders": leaders} if leaders else {}

    def _round_to_json(self, round_: Round) -> list[Any]:
        positions = self._positions(round_.task)
        asked = [
            [positions[candidate.sketch.digest], list(candidate.values)]
            if candidate.sketch.digest in positions
            else candidate.to_json()
            for candidate in round_.asked
        ]
        return [round_.task, asked]

    def _round_from_json(self, data: Sequence[Any]) -> Round:
        task, asked = data
        try:
            sketches = self._spaces[task].sketches()
            found = [_candidate_from_json(item, sketches) for item in asked]
        except (IndexError, TypeError, ValueError, InvalidValueError) as error:
            raise DatabaseError(
                f"the run's checkpoint has a round that the search space does not ({error}); "
                "start over with fresh=True (--fresh)"
            ) from error
        return Round(task, found)

    def _positions(self, task: int) -> dict[str, int]:
        sketches = self._spaces[task].sketches()
        return {sketch.digest: number for number, sketch in enumerate(sketches)}


def _candidate_from_json(item: Any, sketches: Sequence[Sketch]) -> Candidate:
    """A candidate by its sketch's number and its values, or with a sketch of another space."""
    if isinstance(item, Mapping):
        return Candidate.from_json(item, sketches[0].workload)
    number, values = item
    return Candidate(sketches[number], tuple(values))


PER_LANE = 4
"""Candidates that are out for each machine that times, when the next are asked for."""


@define(eq=False)
class Window:
    """Candidates of one task between being asked for and being learnt from.

    A round does not wait for its last candidate: outcomes are learnt from in the order in which
    they arrive, as many at a time as a round has, whichever rounds they are of. Then the next
    rounds are asked for. So what is proposed follows from the order of outcomes, and from nothing
    else: not from when they arrive, nor from when the search is done with its work.

    Attributes:
        step: How many outcomes are learnt from at a time.
        pending: What was asked for and not learnt from, in the order asked.
        arrived: Outcomes that were not learnt from, in the order in which they arrived.
    """

    step: int
    pending: list[Candidate] = field(factory=list)
    arrived: deque[Observation] = field(factory=deque)

    def is_short(self, lanes: int) -> bool:
        """Return whether to ask for another round.

        Args:
            lanes: How many machines time: until the next step, each has something to do.
        """
        return len(self.pending) < self.step + PER_LANE * lanes

    def add(self, asked: Sequence[Candidate]) -> list[Candidate]:
        """Note what was asked for; returns those that are not out already."""
        out = {candidate.digest for candidate in self.pending}
        new = [it for digest, it in {it.digest: it for it in asked}.items() if digest not in out]
        self.pending += new
        return new

    def arrive(self, known: Sequence[Observation]) -> None:
        """Note outcomes, in the order in which they became known."""
        self.arrived.extend(known)

    @property
    def missing(self) -> int:
        """Number of outcomes to wait for before the next step: at the end all that are out."""
        return max(0, min(self.step, len(self.pending)) - len(self.arrived))

    def take_step(self) -> list[Observation]:
        """Outcomes to learn from now, in the order in which they arrived."""
        taken = [self.arrived.popleft() for _ in range(min(self.step, len(self.arrived)))]
        gone = {candidate.digest for candidate, _ in taken}
        self.pending = [it for it in self.pending if it.digest not in gone]
        return taken

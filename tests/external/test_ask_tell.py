"""The ask/tell loop: who asks is never given a configuration twice, and nothing is lost."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autotune
from autotune.errors import InvalidValueError, PluginError, UnknownNameError
from autotune.external.ask_tell import AskTell, Proposal
from autotune.plugins.manager import manager
from autotune.search.strategies import RandomStrategy
from autotune.sketches import Candidate
from autotune.spaces.parameters import Parameter, Value

PARAMETERS: Mapping[str, list[Value]] = {
    "block": [16, 32, 64, 128],
    "warps": [1, 2, 4],
    "layout": ["row", "column"],
    "share": [0.25, 0.5],
    "unroll": [True, False],
}
CONSTRAINTS = ["block * warps <= 256", "layout == 'row' or unroll"]
WITHOUT_NEST = tuple(
    name
    for name in manager().names("strategy")
    if not manager().get("strategy", name).reads_nest
    and str(manager().get("strategy", name).factory).startswith("autotune.")
)


def search(strategy: str = "random", seed: int = 0, **options: Any) -> AskTell:
    return AskTell(PARAMETERS, CONSTRAINTS, strategy=strategy, seed=seed, **options)


def cost(config: Mapping[str, Value]) -> float:
    """Duration of a configuration, in seconds."""
    block, warps, share = config["block"], config["warps"], config["share"]
    assert isinstance(block, int) and isinstance(warps, int) and isinstance(share, float)
    return 1e-3 * (1 + abs(math.log2(block) - 5) + abs(warps - 2) + share + bool(config["unroll"]))


def key(config: Mapping[str, Value]) -> str:
    return json.dumps(dict(config), sort_keys=True)


@pytest.mark.parametrize("strategy", WITHOUT_NEST)
def test_every_configuration_is_proposed_once(strategy: str) -> None:
    made = search(strategy)
    found = []
    while proposals := made.ask(7):
        for proposal in proposals:
            made.tell(proposal, seconds=cost(proposal.config))
            found.append(key(proposal.config))
    assert len(found) == len(set(found)) == made.count == len(made.seen)
    assert made.ask() == [] and not made.pending
    best = made.best
    assert best is not None and best.seconds == min(cost(trial.config) for trial in made.seen)


def test_constraints_hold() -> None:
    for proposal in search().ask(1000):
        block, warps = proposal.config["block"], proposal.config["warps"]
        assert isinstance(block, int) and isinstance(warps, int) and block * warps <= 256
        assert proposal.config["layout"] == "row" or proposal.config["unroll"]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 5)),
        st.tuples(st.just("tell"), st.integers(0, 100)),
        st.tuples(st.just("fail"), st.integers(0, 100)),
        st.tuples(st.just("seed"), st.integers(0, 35)),
        st.tuples(st.just("learn"), st.integers(0, 35)),
    ),
    max_size=12,
)
ALL = [dict(it.config) for it in search("grid").ask(1000)]


def act(made: AskTell, action: str, number: int) -> None:
    pending = made.pending
    if action == "ask":
        made.ask(number)
    elif action == "seed":
        made.seed([ALL[number]])
    elif action == "learn":
        if key(ALL[number]) not in {key(trial.config) for trial in made.seen}:
            made.learn(ALL[number], seconds=cost(ALL[number]))
    elif pending:
        chosen = pending[number % len(pending)]
        if action == "tell":
            made.tell(chosen.id, seconds=cost(chosen.config))
        else:
            made.tell(chosen, failed="it does not compile")


@given(strategy=st.sampled_from(WITHOUT_NEST), before=ACTIONS, after=ACTIONS)
@settings(max_examples=40, deadline=None)
def test_a_restored_search_continues_as_the_first_would(
    strategy: str, before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    made = search(strategy, seed=5)
    for action in before:
        act(made, *action)
    restored = AskTell.from_state(json.loads(json.dumps(made.state())))
    for action in [*after, ("ask", 4)]:
        act(made, *action)
        act(restored, *action)
    assert restored.state() == made.state()
    assert (restored.seen, restored.pending) == (made.seen, made.pending)


@given(actions=ACTIONS, strategy=st.sampled_from(WITHOUT_NEST))
@settings(max_examples=40, deadline=None)
def test_nothing_is_proposed_twice_whatever_the_user_proposes(
    actions: list[tuple[str, int]], strategy: str
) -> None:
    made = search(strategy, seed=1)
    for action in actions:
        act(made, *action)
    while made.ask(10):
        pass
    known = [key(it.config) for it in (*made.seen, *made.pending)]
    assert len(known) == len(set(known)) == made.count


@given(order=st.permutations(range(6)))
@settings(max_examples=20, deadline=None)
def test_the_order_of_results_does_not_matter(order: list[int]) -> None:
    proposed = []
    for numbers in (range(6), order):
        made = search("evolutionary", seed=2)
        first = made.ask(6)
        for number in numbers:
            made.tell(first[number], seconds=cost(first[number].config))
        proposed.append(made.ask(6))
    assert proposed[0] == proposed[1]


def test_seeds_come_first_and_once() -> None:
    made = search()
    made.seed([ALL[3], ALL[8], ALL[3]])
    assert [dict(it.config) for it in made.ask(1)] == [ALL[3]]
    later = [dict(it.config) for it in made.ask(1000)]
    assert later[0] == ALL[8] and ALL[3] not in later and len(later) == made.count - 1


def test_earlier_results_are_learnt_from() -> None:
    cold, warm = (search("evolutionary", options={"epsilon": 0.0}) for _ in range(2))
    best = min(ALL, key=cost)
    warm.learn(best, seconds=cost(best))
    assert warm.best is not None and dict(warm.best.config) == best
    assert warm.ask(5) != cold.ask(5)
    assert key(best) not in {key(it.config) for it in warm.ask(1000)}


def test_a_list_of_configurations() -> None:
    some = ALL[::3]
    made = AskTell(PARAMETERS, strategy="random", configs=some)
    assert made.count == len(some)
    restored = AskTell.from_state(json.loads(json.dumps(made.state())))
    asked = [dict(it.config) for it in made.ask(100)]
    assert sorted(map(key, asked)) == sorted(map(key, some))
    assert [dict(it.config) for it in restored.ask(100)] == asked
    with pytest.raises(InvalidValueError, match=f"none of the {len(some)} that there are"):
        made.learn(ALL[1], seconds=1.0)


def test_failures_are_no_best() -> None:
    made = search()
    for proposal in made.ask(3):
        made.tell(proposal, failed="out of registers")
    assert made.best is None
    assert {trial.outcome.message for trial in made.seen} == {"out of registers"}
    (last,) = made.ask(1)
    made.tell(last, seconds=2.0)
    assert made.best is not None and made.best.id == last.id


WRONG: dict[str, tuple[Callable[[AskTell], object], str]] = {
    "unknown": (lambda it: it.tell(7, 1.0), "there is no proposal 7; those that wait are: 1"),
    "twice": (lambda it: it.tell(0, 1.0), r"proposal 0 was told before: 0\.5 s"),
    "twice learnt": (lambda it: it.learn(it.seen[0].config, 1.0), "proposal 0 was told before"),
    "no result": (lambda it: it.tell(1), "either seconds or what failed"),
    "two results": (lambda it: it.tell(1, 1.0, failed="no"), "either seconds or what failed"),
    "nan": (lambda it: it.tell(1, math.nan), "positive and finite, not nan"),
    "negative": (lambda it: it.tell(1, -1.0), "positive and finite"),
    "text": (lambda it: it.tell(1, "fast"), "seconds are a number"),  # type: ignore[arg-type]
    "count": (lambda it: it.ask(-1), "cannot ask for -1"),
    "infeasible": (
        lambda it: it.seed([{**ALL[0], "block": 128, "warps": 4}]),
        r"not in the space: it violates 'block \* warps <= 256'",
    ),
    "value": (lambda it: it.seed([{**ALL[0], "warps": 3}]), "'warps' cannot be 3"),
    "parameter": (lambda it: it.seed([{"block": 16}]), "lacks layout, share, unroll, warps"),
    "another": (
        lambda it: it.tell(Proposal(1, {"a": 1}), 1.0),
        "not {'a': 1}: it is one of another search",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_mistakes(wrong: str) -> None:
    made = search()
    first, _ = made.ask(2)
    made.tell(first, seconds=0.5)
    call, message = WRONG[wrong]
    state = made.state()
    with pytest.raises(InvalidValueError, match=message):
        call(made)
    assert made.state() == state


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            {"strategy": "heron"}, "reads the symbolic loop nest", marks=pytest.mark.needs("heron")
        ),
        ({"strategy": "random", "seed": -1}, "a seed is"),
        ({"strategy": "random", "constraints": "block < 1"}, "a list of texts"),
        ({"strategy": "random", "constraints": ["print(block)"]}, "calls a function"),
        ({"strategy": "random", "constraints": ["block > 999"]}, "is empty"),
        ({"strategy": "random", "constraints": ["block > 9"], "configs": ALL}, "not both"),
        (
            {"strategy": "random", "parameters": {"block": 4}},
            "'block': a table with keys",
        ),
        (
            {"strategy": "random", "parameters": ["block"]},
            r"a table .* not \['block'\]",
        ),
    ],
)
def test_what_no_search_can_be_made_of(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        AskTell(**{"parameters": PARAMETERS, **arguments})


def test_an_unknown_strategy() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'random'"):
        search("randon")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2"),
        ({"strategy": "os:system"}, "no plugin registers"),
        ({"entries": 3}, "entries"),
        ({"undelivered": [4]}, "no proposal 4"),
        ({"parameters": [{"name": "block"}]}, "not a parameter"),
        ({"waiting": [{"block": 1}]}, "lacks"),
    ],
)
def test_a_state_that_is_none(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        AskTell.from_state({**search().state(), **change})


class Repeating(RandomStrategy):
    """Proposes its first candidate for ever."""

    def ask(self, n: int) -> list[Candidate]:
        found = super().ask(n)
        self.first = getattr(self, "first", found[0])
        return [self.first]


def test_a_strategy_that_repeats_itself_is_stopped() -> None:
    made = search(f"{__name__}:Repeating")
    made.ask(1)
    with pytest.raises(PluginError, match="a second time"):
        made.ask(1)
    with pytest.raises(InvalidValueError, match="which no plugin registers"):
        AskTell.from_state(made.state())


def test_it_is_public() -> None:
    assert autotune.AskTell is AskTell
    made = autotune.AskTell([Parameter("a", (1, 2), default=2)], strategy="grid")
    assert [it.config for it in made.ask(9)] == [{"a": 1}, {"a": 2}]
    assert AskTell.from_state(made.state()).space.parameters == made.space.parameters

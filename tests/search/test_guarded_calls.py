"""Faults of strategies and schedulers are one error that names them and the call."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_parts import tune_toy

import autotune
from autotune.errors import InvalidValueError, PluginError
from autotune.process.interrupts import InterruptGuard, UserInterrupt
from autotune.search.guarded_calls import asked_of, calling, state_of
from autotune.search.strategies import RandomStrategy, StrategyContext
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.store.sqlite import open_database
from autotune.testing.toy_space import ToySpace


class Faulty(RandomStrategy):
    """Raises or returns what it was made with in one of its calls."""

    name = "faulty"
    call = ""
    does: Any = None

    def _do(self) -> Any:
        if isinstance(self.does, BaseException):
            raise self.does
        return self.does

    def ask(self, n: int) -> list[Candidate]:
        found: list[Candidate] = self._do() if self.call == "ask" else super().ask(n)
        return found

    def tell(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        self._do()

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self._do() if self.call == "state" else super().state()
        return found


def faulty(call: str, does: object) -> Faulty:
    context = StrategyContext(space=ToySpace(8), rng=np.random.default_rng(1))
    strategy = Faulty(context)
    strategy.call, strategy.does = call, does
    return strategy


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no luck"),
        Mute(),
        SystemExit(0),
        GeneratorExit(),
        KeyboardInterrupt(),
        StopIteration(),
    ],
)
def test_what_a_part_raises_is_an_error_that_names_it(error: BaseException) -> None:
    with InterruptGuard():
        for call, strategy in ((call, faulty(call, error)) for call in ("ask", "tell", "state")):
            with pytest.raises(PluginError) as caught, calling(strategy, call):
                strategy.ask(1) if call == "ask" else strategy._do()
            assert str(caught.value).startswith(
                f"strategy 'faulty' ({__name__}) failed in {call}(): {type(error).__name__}: "
            )


def test_an_interrupt_by_the_user_and_an_error_of_autotune_pass() -> None:
    with InterruptGuard(), pytest.raises(UserInterrupt), calling(faulty("ask", None), "ask"):
        os.kill(os.getpid(), signal.SIGINT)
        signal.sigtimedwait([], 1)
    with pytest.raises(KeyboardInterrupt), calling(faulty("ask", None), "ask"):
        raise KeyboardInterrupt  # nobody handles signals here: it may be the user's
    with pytest.raises(InvalidValueError), calling(faulty("ask", None), "ask"):
        raise InvalidValueError("on purpose")


@pytest.mark.parametrize("asked", [5, ["x"], [None], "text", {}.keys()])
def test_what_is_no_list_of_candidates_is_refused(asked: object) -> None:
    with pytest.raises(PluginError, match="'faulty'.* from ask\\(\\), not a list of candidates"):
        asked_of(faulty("ask", asked), 4)


def test_candidates_and_exhaustion_pass() -> None:
    assert len(asked_of(faulty("", None), 4)) == 4
    assert asked_of(faulty("ask", []), 4) == asked_of(faulty("ask", None), 4) == []


@pytest.mark.parametrize("state", [[1], None, {"x": float("nan")}, {"x": {1}}, {"x": b""}, 7])
def test_a_state_that_is_no_json_object_is_refused(state: object) -> None:
    with pytest.raises(PluginError, match="'faulty'.* has a state\\(\\) that is "):
        state_of(faulty("state", state))


def test_a_state_passes() -> None:
    assert state_of(faulty("state", {"x": [1, 2.5, None]})) == {"x": [1, 2.5, None]}


@pytest.mark.promise(
    "a strategy that ends the process",
    "the run ends with one error that names it, and can be resumed",
)
def test_a_run_goes_on_after_a_strategy_that_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tune() -> autotune.Result:
        parts = {"strategy": "random"}
        return tune_toy(tmp_path / "records.db", trials=12, round_size=4, parts=parts)

    def leave(_self: RandomStrategy, _outcomes: object) -> None:
        raise SystemExit(0)

    with monkeypatch.context() as patch:
        patch.setattr(RandomStrategy, "tell", leave)
        with pytest.raises(PluginError, match=r"strategy 'random' .* failed in tell\(\): System"):
            tune()
    with open_database(tmp_path / "records.db") as database:
        kept = [record.candidate.digest for record in database.records()]
    assert len(kept) == 4
    tune()
    with open_database(tmp_path / "records.db") as database:
        after = [record.candidate.digest for record in database.records()]
    assert len(after) == len(set(after)) == 12
    assert set(kept) < set(after)

"""Does the race find the fastest: the part of `measuring.py` that holds winners against winners.

Every candidate is timed long, all of them in turns: the fastest is the winner that counts. Then,
several times, a fresh measurer races the same candidates in another order, and TVM's timer, set as
TVM's tuner sets it, times each of them. At the end everything that has won is timed in turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from draft import draw

from autotune.evaluation.compare import long_protocol
from autotune.measure import LocalMeasurer
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.targets import Target
from support.candidate_server import CandidateServer
from support.common import Bar, cores

# Each candidate's share of the exhaustive timing: turns, and the seconds of each.
TURNS, TURN_SECONDS = 10, 0.03
# Of the winners: in several sessions, as processes differ in where their memory lies.
FINAL_TURNS = 20
SESSIONS, QUICK_SESSIONS = 5, 3

WORST_RATIO = 1.02
SHARE_OF_TIME = 0.25
SPREAD = 0.03


@dataclass
class Choice:
    """A choice of a winner.

    Attributes:
        candidate: Its digest.
        latency: What was thought to be its latency, in seconds.
        seconds: What checking and timing all candidates took; building is not counted.
        checking: How much of that was checking.
        programs: How many programs were timed: candidates may be the same program.
    """

    candidate: str
    latency: float
    seconds: float
    checking: float = 0.0
    programs: int = 0


@dataclass
class Races:
    """Everything about one operator.

    Attributes:
        candidates: How many there were.
        timed: How many of them run.
        exhaustive: The choice of exhaustive timing.
        race: Those of the race.
        tvm: Those of TVM's timer.
        ratios: By winner, how much slower it is than the exhaustive one: by session, the median
            over the turns.
        medians: By winner and session, the median in seconds.
    """

    candidates: int
    timed: int
    exhaustive: Choice
    race: list[Choice] = field(default_factory=list)
    tvm: list[Choice] = field(default_factory=list)
    ratios: dict[str, list[float]] = field(default_factory=dict)
    medians: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, choice: Choice) -> float:
        """Latency of a chosen candidate over that of the exhaustive winner."""
        return statistics.median(self.ratios[choice.candidate])

    def ratios_of(self, choices: Sequence[Choice]) -> list[float]:
        """The same for every choice; infinite where the winner did not run at the end."""
        return [self.ratio(it) if self.ratios.get(it.candidate) else np.inf for it in choices]


def spread(ratios: Sequence[float]) -> float:
    """Latency of the slowest winner over that of the fastest."""
    return max(ratios) / min(ratios) - 1


def fastest(
    candidates: Sequence[Candidate], outcomes: Sequence[Outcome], seconds: float
) -> Choice:
    """The candidate with the smallest latency; of equals the first, as in a tuning run."""
    known = [
        (outcome.latency, candidate.digest)
        for candidate, outcome in zip(candidates, outcomes, strict=True)
        if outcome.latency is not None
    ]
    if not known:
        raise SystemExit("none of the candidates ran")
    latency, digest = min(known, key=lambda pair: pair[0])
    timed = [outcome for outcome in outcomes if outcome.ok and not outcome.duplicate_of]
    checking = sum(it.timings.get(phase, 0.0) for it in timed for phase in ("load", "verify"))
    return Choice(digest, latency, seconds, checking, len(timed))


def time_in_turns(
    candidates: Sequence[Candidate], target: Target, turns: int, seed: int
) -> tuple[list[Outcome], float]:
    """Outcomes of candidates that were timed in turns, and the seconds that took."""
    workload, protocol = candidates[0].sketch.workload, long_protocol(turns, TURN_SECONDS)
    with LocalMeasurer("tvm", target, cores(), workload, protocol=protocol, seed=seed) as measurer:
        outcomes = measurer.rematch(candidates)
        return outcomes, measurer.seconds["run"]


def race(candidates: Sequence[Candidate], target: Target, seed: int) -> Choice:
    """Choice of a fresh measurer, as tuning uses it."""
    workload = candidates[0].sketch.workload
    with LocalMeasurer("tvm", target, cores(), workload, seed=seed) as measurer:
        outcomes = measurer.measure(candidates)
        return fastest(candidates, outcomes, measurer.seconds["run"])


def evaluate(
    candidates: Sequence[Candidate], order: Sequence[int], server: CandidateServer
) -> Choice:
    """Choice of TVM's timer."""
    ready = set(server.ready)
    answers = {i: server.ask("evaluate", i) for i in order if i in ready}
    best = min(answers, key=lambda number: answers[number]["seconds"])
    spent = sum(answer["spent"] for answer in answers.values())
    return Choice(candidates[best].digest, answers[best]["seconds"], spent, 0.0, len(answers))


def run_races(
    name: str, count: int, repeats: int, sessions: int, say: Callable[[str], None]
) -> Races:
    """Everything about one operator.

    Args:
        name: Which one.
        count: How many candidates.
        repeats: How often the race and TVM's timer choose.
        sessions: How often the winners are timed in turns at the end.
        say: Is told how it goes.
    """
    workload, target, candidates = draw(name, count, 0)
    outcomes, seconds = time_in_turns(candidates, target, TURNS, 0)
    exhaustive = fastest(candidates, outcomes, seconds)
    found = Races(len(candidates), sum(outcome.ok for outcome in outcomes), exhaustive)
    say(f"{name}: {found.timed} of {found.candidates} candidates run")
    say(f"  exhaustive: {_shown(exhaustive)}")
    rng = np.random.default_rng(0)
    with CandidateServer(candidates, target, cores(), range(cores())) as server:
        for seed in range(repeats):
            order = [int(index) for index in rng.permutation(len(candidates))]
            found.race.append(race([candidates[index] for index in order], target, seed))
            found.tvm.append(evaluate(candidates, order, server))
            say(f"  race: {_shown(found.race[-1])}; TVM's: {_shown(found.tvm[-1])}")
    by_digest = {candidate.digest: candidate for candidate in candidates}
    chosen = [exhaustive, *found.race, *found.tvm]
    winners = [by_digest[digest] for digest in dict.fromkeys(it.candidate for it in chosen)]
    for session in range(sessions):
        _add_session(found, winners, target, seed=100 + session)
    return found


def _add_session(found: Races, winners: Sequence[Candidate], target: Target, seed: int) -> None:
    """Time the winners, of which the exhaustive one is the first, in turns."""
    outcomes, _ = time_in_turns(winners, target, FINAL_TURNS, seed)
    reference = outcomes[0].samples
    for candidate, outcome in zip(winners, outcomes, strict=True):
        if outcome.latency is None or not outcomes[0].ok:
            continue
        pairs = zip(outcome.samples, reference, strict=True)
        ratio = statistics.median(own / best for own, best in pairs)
        found.ratios.setdefault(candidate.digest, []).append(ratio)
        found.medians.setdefault(candidate.digest, []).append(outcome.latency)


def _shown(choice: Choice) -> str:
    milliseconds = choice.latency * 1e3
    checked = f" ({choice.checking:.1f} s checking)" if choice.checking else ""
    return (
        f"{choice.candidate[:8]} at {milliseconds:.3f} ms, {choice.programs} programs in "
        f"{choice.seconds:.1f} s{checked}"
    )


def show(found: Races) -> None:
    """Print how the winners compare."""
    for label, choices in (("race", found.race), ("TVM's", found.tvm)):
        ratios = found.ratios_of(choices)
        seconds = statistics.median(choice.seconds for choice in choices)
        share = seconds / found.exhaustive.seconds
        print(
            f"  {label:<6} winners over the exhaustive one: median "
            f"{statistics.median(ratios):.3f}, worst {max(ratios):.3f}, spread "
            f"{spread(ratios):.1%}; {seconds:.1f} s, {share:.1%} of the exhaustive timing",
            flush=True,
        )


def bars_of(name: str, found: Races) -> list[Bar]:
    """The promises for one operator."""
    ratios, theirs = found.ratios_of(found.race), found.ratios_of(found.tvm)
    seconds = statistics.median(choice.seconds for choice in found.race)
    their_seconds = statistics.median(choice.seconds for choice in found.tvm)
    long = found.exhaustive.seconds
    return [
        Bar(
            f"{name}: the race's winner over the exhaustive one",
            statistics.median(ratios),
            WORST_RATIO,
            at_most=True,
            note=f"worst {max(ratios):.3f}; TVM's {statistics.median(theirs):.3f}, "
            f"worst {max(theirs):.3f}",
        ),
        Bar(
            f"{name}: the race's seconds over the exhaustive timing's",
            seconds / long,
            SHARE_OF_TIME,
            at_most=True,
            note=f"{seconds:.1f} s; TVM's {their_seconds / long:.3g}",
        ),
        Bar(
            f"{name}: spread of the race's winners",
            spread(ratios),
            SPREAD,
            at_most=True,
            note=f"TVM's {spread(theirs):.3g}",
        ),
    ]

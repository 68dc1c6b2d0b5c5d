"""A process for all models, for as long as the run, and quiet unless it is asked something."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from patient_clock import PatientClock
from process_facts import becomes_true
from python_processes import start_python
from thinning import thinned
from toy_parts import TOY_TREES

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.workloads import gemm
from autotune.models import ModelContext
from autotune.models.cost import AnalyticCostModel, GradientBoostedTrees, RandomCostModel
from autotune.models.host import HostedCostModel, HostedPruningModel, ModelHost, ModelSpec
from autotune.models.pruning.psa import PSA
from autotune.nest.relaxed import param_bounds
from autotune.plugins import PluginSpec
from autotune.plugins.manager import manager
from autotune.search.strategies import EvolutionaryStrategy, StrategyContext
from autotune.sketches import CandidateBatch
from autotune.sketches.steps import STEP_TYPES
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.store.records import Outcome
from autotune.targets import Target, resolve
from autotune.testing.toy_space import ToySpace, toy_outcome

BATCH = ToySpace().sample(40, np.random.default_rng(1))
TOLD = [(item, toy_outcome(item)) for item in ToySpace().sample(24, np.random.default_rng(2))]
RANDOM = ModelSpec("cost_model", "random", {"seed": 5, "threads": 1})
TREES = ModelSpec("cost_model", TOY_TREES, {"seed": 5, "threads": 2})
LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")

MakeHost = Callable[..., ModelHost]


@pytest.fixture(scope="module")
def random_host() -> Iterator[ModelHost]:
    """Of a model that nothing is told to and that nothing happens to."""
    target, clock = resolve("avx512-8core"), PatientClock()
    with ModelHost(target, [RANDOM], on_warning=pytest.fail, clock=clock) as host:
        yield host


def cpu_nanoseconds(threads: Sequence[Path]) -> int:
    """CPU time of threads, to the nanosecond."""
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


def test_unknown_models_are_refused_before_anything_starts(target: Target) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'gbdt'"):
        ModelHost(target, [ModelSpec("cost_model", "gbtd")])


def test_only_what_is_there_can_be_asked(random_host: ModelHost) -> None:
    with pytest.raises(InvalidValueError, match="no pruning model"):
        HostedPruningModel(random_host)


def test_a_model_without_a_gradient_says_so(random_host: ModelHost) -> None:
    model = HostedCostModel(random_host)
    sketch, matrix = BATCH.parts[0]
    for _ in range(2):
        with pytest.raises(InvalidValueError, match="'random' has no gradient.* one: analytic"):
            model.relaxed(sketch, matrix.astype(np.float64))
    with pytest.raises(InvalidValueError, match="parameters; got points"):
        model.relaxed(sketch, np.ones((2, 1)))


def test_gradients_are_those_of_the_model(make_host: MakeHost, target: Target) -> None:
    spec = ModelSpec("cost_model", "analytic", {"seed": 5, "threads": 1})
    host = make_host(spec, on_warning=pytest.fail)
    hosted, own = HostedCostModel(host), AnalyticCostModel(ModelContext(target=target))
    for model in (hosted, own):
        model.update(TOLD)
    for sketch, matrix in BATCH.parts:
        points = matrix + 0.25
        points[0] = matrix[0]
        points = np.minimum(points, [value for _, value in param_bounds(sketch).values()])
        for found, expected in zip(
            hosted.relaxed(sketch, points), own.relaxed(sketch, points), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
            assert found.flags.writeable
    np.testing.assert_array_equal(hosted.predict(BATCH), own.predict(BATCH))
    with pytest.raises(InvalidValueError, match="its bounds are"):
        hosted.relaxed(sketch, points * 1e6)
    host.on_warning = lambda message: None
    hosted.load_state({"given up": "by a test", "state": None})
    values, gradient = hosted.relaxed(sketch, points)
    assert not values.any() and not gradient.any() and gradient.shape == points.shape


def test_one_process_serves_all_calls_and_ends_with_the_host(target: Target) -> None:
    with ModelHost(target, [TREES, ModelSpec("pruning_model", "psa")]) as host:
        host.wait_ready()
        pid = host.pid
        assert pid is not None
        model = HostedCostModel(host)
        for start in range(0, 24, 6):
            model.update(TOLD[start : start + 6])
            model.predict(BATCH)
        assert host.pid == pid
        assert model.name == "gbdt" and HostedPruningModel(host).name == "psa"
        # Its library is there, and what that would import for nobody is not.
        loaded = Path("/proc", str(pid), "maps").read_text()
        assert "lib_lightgbm" in loaded
        assert not any(f"/{name}/" in loaded for name in GradientBoostedTrees.unused_packages)
    assert host.pid is None and not Path("/proc", str(pid)).exists()


def test_a_forgotten_guard_leaves_nothing(tmp_path: Path) -> None:
    """Neither in a process that ends nor in one that is killed."""
    code = (
        "import os, signal, sys; from autotune.models.host import *; "
        "from autotune.targets import resolve; "
        "host = ModelHost(resolve('avx512-8core'), [ModelSpec('cost_model', 'random')]); "
        "host.start(); host.wait_ready(); print(host.pid, flush=True); {end}"
    )
    for end in ("sys.exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"):
        with start_python("-c", code.format(end=end), TMPDIR=str(tmp_path)) as process:
            output, errors = process.communicate()
        assert output.strip(), errors
        child = Path("/proc", output.strip())
        assert becomes_true(lambda child=child: not child.exists())
        if end.startswith("sys"):
            assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", thinned([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV], 3))
def test_one_killed_between_calls_is_replaced(number: signal.Signals, make_host: MakeHost) -> None:
    warnings: list[str] = []
    host = make_host(TREES, on_warning=warnings.append)
    model = HostedCostModel(host)
    model.update(TOLD[:8])
    model.state()
    model.update(TOLD[8:16])
    before = model.predict(BATCH)
    pid = host.pid
    assert pid is not None
    os.kill(pid, number)
    np.testing.assert_array_equal(model.predict(BATCH), before)
    assert host.pid != pid and not warnings


def test_an_interrupted_call_does_not_confuse_the_next(
    random_host: ModelHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = random_host
    model = HostedCostModel(host)
    first = model.predict(BATCH)

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    for moment in ("send", "answer"):
        with monkeypatch.context() as patch:
            patch.setattr(host._process, moment, interrupted)
            with pytest.raises(KeyboardInterrupt):
                model.predict(CandidateBatch(()))
        np.testing.assert_array_equal(model.predict(BATCH), first)


def test_threads_may_share_it(random_host: ModelHost) -> None:
    model = HostedCostModel(random_host)
    wrong: list[int] = []

    def ask(number: int) -> None:
        batch = ToySpace().sample(20, np.random.default_rng(number))
        wanted = RandomCostModel(ModelContext(seed=5)).predict(batch)
        wrong.extend(number for _ in range(20) if (model.predict(batch) != wanted).any())

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_it_does_nothing_between_calls(make_host: MakeHost) -> None:
    """Else it would disturb what is timed. Enough rows that lightgbm uses several threads."""
    host = make_host(TREES)
    model = HostedCostModel(host)
    model.update(TOLD)
    model.predict(ToySpace().sample(30_000, np.random.default_rng(1)))
    pid = host.pid
    assert pid is not None
    threads = list(Path("/proc", str(pid), "task").iterdir())
    assert len(threads) > 1

    def keeps_still() -> bool:
        before = cpu_nanoseconds(threads)
        time.sleep(1.0)
        return cpu_nanoseconds(threads) == before

    # Those of lightgbm watch for more work before they fall asleep: long, on a busy machine.
    assert becomes_true(keeps_still)


def test_a_state_is_fetched_once(make_host: MakeHost) -> None:
    model = HostedCostModel(make_host(TREES))
    model.update(TOLD[:4])
    first = model.state()
    assert model.state() is first
    model.update(TOLD[4:8])
    assert model.state() is not first and len(model.state()["latencies"]) == 8


def test_a_model_that_was_given_up_stays_so_in_a_resumed_run(make_host: MakeHost) -> None:
    warnings: list[str] = []
    model = HostedCostModel(make_host(RANDOM, on_warning=warnings.append))
    model.load_state({"given up": "failed in update: killed by SIGSEGV", "state": None})
    (warning,) = warnings
    assert warning == (
        "cost model 'random' failed in update: killed by SIGSEGV; the run continues without it"
    )
    model.update(TOLD)
    assert not model.predict(BATCH).any()
    assert model.state() == {"given up": "failed in update: killed by SIGSEGV", "state": None}


def test_what_only_the_host_has_registered_is_found(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "registered_here.py").write_text(
        "from attrs import evolve\nfrom autotune.models.cost import RandomCostModel\n"
        "def make(context):\n    return RandomCostModel(evolve(context, seed=context.seed + 1))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = PluginSpec("cost_model", "only-here", "registered_here:make", "Only here")
    manager().register(SimpleNamespace(autotune_parts=lambda: [spec]), "here")
    try:
        host = make_host(ModelSpec("cost_model", "only-here", {"seed": 4, "threads": 1}))
        scores = HostedCostModel(host).predict(BATCH)
    finally:
        manager.cache_clear()
    np.testing.assert_array_equal(scores, RandomCostModel(ModelContext(seed=5)).predict(BATCH))


def test_a_search_goes_as_with_models_in_this_process(make_host: MakeHost, target: Target) -> None:
    """The defaults of tuning on real sketches: the same candidates, round by round."""
    space = SketchSpace(gemm(m=128, n=128, k=64), target, LIMITS)
    asked = []
    spec = ModelSpec("cost_model", "gbdt", {"seed": 7, "threads": 2})
    host = make_host(spec, ModelSpec("pruning_model", "psa"))
    pairs = (
        (HostedCostModel(host), HostedPruningModel(host)),
        (
            GradientBoostedTrees(ModelContext(target=target, seed=7, threads=2)),
            PSA(ModelContext(target=target)),
        ),
    )
    for cost, pruning in pairs:
        rng = np.random.default_rng(11)
        strategy = EvolutionaryStrategy(StrategyContext(space, rng, cost, pruning))
        rounds = []
        for _ in range(3):
            candidates = strategy.ask(8)
            told = [
                (item, Outcome("ok", 1e-3 * (1 + int(item.digest[:4], 16) % 100)))
                for item in candidates
            ]
            strategy.tell(told)
            cost.update(told)
            rounds.append(([item.digest for item in candidates], cost.state()))
        asked.append(rounds)
    assert asked[0] == asked[1]

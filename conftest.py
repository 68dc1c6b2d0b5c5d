"""Settings of all tests: names of cases, numbers of examples, and what is counted."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from autotune.ir.workloads import Workload
from autotune.measure import workers

pytest_plugins = ["needs_plugin"]

_IN_MEMORY = "/dev/shm"


def _is_roomy(folder: str) -> bool:
    """True for a folder with 4 GB left in which programs may be written and run."""
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return False
    found = os.statvfs(folder)
    return not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= 4 << 30


# A shell starts its background jobs with interrupts ignored, and so would all that they start:
# the tests of interrupts need one that is not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# To look for garbage each time that some hundreds of objects have come takes a tenth of the time.
gc.set_threshold(50_000, 20, 100)

# Tests run beside one another, and most time nothing that has to be exact.
os.environ.setdefault("AUTOTUNE_ALLOW_BUSY_CPU", "1")

# Threads of NumPy's library spin for 30 ms in every process that imports it, before they sleep.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# Those of torch and lightgbm spin at each barrier for one that another process keeps from running:
# on processors that are busy their work takes ten to twenty times as long.
os.environ.setdefault("GOMP_SPINCOUNT", "0")

# Folders of tests are in memory where there is room. Each of the many transactions of SQLite waits
# for a disk: for 8 ms on that of a virtual machine, and in all for a fifth of the time.
if _is_roomy(_IN_MEMORY):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _IN_MEMORY)

# What is compiled in a test is compiled there.
os.environ.setdefault("AUTOTUNE_OBJECT_CACHE", "off")

# Machines may be busy, and fixtures hold nothing that an example changes.
_UNHURRIED = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("quick", _UNHURRIED, max_examples=30)
settings.register_profile("long", _UNHURRIED, max_examples=1000)
# Where it matters that a test fails, and not how: no smaller example is looked for.
settings.register_profile(
    "unshrunk", settings.get_profile("quick"), phases=(Phase.explicit, Phase.generate)
)
# `pytest --hypothesis-profile long` replaces it. Costly tests take a share of the examples.
settings.load_profile("quick")

_seconds: Counter[str] = Counter()
_attacks: defaultdict[str, Counter[str]] = defaultdict(Counter)
_COUNTED = pytest.StashKey[float]()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Cases of workloads are called after them and their shapes."""
    if isinstance(val, Workload):
        return " ".join([val.name, *map(str, val.parameters.values())])
    return None


@pytest.fixture(scope="session", autouse=True)
def one_worker() -> Iterator[None]:
    """Runs in this process start one worker, unless they ask for more.

    Each further one takes half a second of a processor to start, or two with a compiler, and most
    tests of runs are about what is decided, not about what is built at the same time. Tests of
    measuring ask for two, and commands in processes of their own have as many as ever.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "affordable_workers", lambda *_: 1)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_look_at_the_machine() -> Iterator[None]:
    """Runs in this process do not each find out what the first one did.

    They would keep two CPUs busy for a tenth of a second to see whether one slows down the other,
    and then sleep for as long to see whether other programs are at work, which other tests are.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "quiet_neighbour_matters", cache(workers.quiet_neighbour_matters))
        patch.setattr("autotune.cli.machine.busy_cores", lambda: 0.0)
        yield


def _processor_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect without looking for garbage: what ten thousand tests consist of stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Of processes that collect the same, one compiles a module, and the others wait for that."""
    if sys.dont_write_bytecode or not isinstance(collector, pytest.Module):
        return (yield)
    with collector.path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_COUNTED] = _processor_seconds()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        return (yield)
    finally:
        # Children count once they have ended, some of them in a later test.
        stash, total = item.config.stash, _processor_seconds()
        item.user_properties.append(("processor seconds", total - stash[_COUNTED]))
        stash[_COUNTED] = total


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        folder = "/".join(report.nodeid.split("::")[0].split("/")[:2])
        properties = dict(report.user_properties)
        _seconds[folder] += properties.get("processor seconds", 0.0)
        if "attack" in properties:
            end = "failed" if report.failed else properties.get("ended", "failed")
            _attacks[properties["attack"]][end] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _attacks:
        terminalreporter.section("attacks")
    for kind, ends in sorted(_attacks.items()):
        tried, failed = ends.total(), ends["failed"]
        held = ", ".join(f"{count} {end}" for end, count in ends.most_common() if end != "failed")
        terminalreporter.write_line(
            f"{kind}: {tried} tried, {tried - failed} held ({held or 'none'}), {failed} failed"
        )
    if len(_seconds) > 1:
        groups = ", ".join(f"{name} {used:.0f}" for name, used in _seconds.most_common())
        terminalreporter.section("processor seconds")
        terminalreporter.write_line(groups)

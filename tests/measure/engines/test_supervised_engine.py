"""Machines with supervisors: in a cluster of threads, and this machine, which is one node."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from process_facts import becomes_true
from thread_cluster import ThreadCluster, unchanged

from autotune.errors import InvalidValueError
from autotune.ir.workloads import gemm
from autotune.measure import MeasureProtocol
from autotune.measure.engines import ArtefactStore, MeasureEngine, RunnerContext
from autotune.measure.engines.local_engine import LocalEngine
from autotune.measure.engines.supervised import (
    Node,
    OnEvent,
    Supervised,
    SupervisedEngine,
)
from autotune.measure.engines.supervisor import Supervisor, SupervisorSetup, decoded
from autotune.measure.jobs import Reply
from autotune.measure.pool import WorkerPool
from autotune.measure.workers import EnginePool
from autotune.process.channel import encode
from autotune.process.errors import WorkerStartFailed
from autotune.targets import detect_cpu
from autotune.testing.engine_suite import EngineHost, EngineSuite, engine_context
from autotune.testing.reference_backend import SCRIPTED_NATIVE


class TestSupervisedEngine(EngineSuite):
    @classmethod
    def program(cls) -> str:
        # Longer than the deadline of a job that is to be late.
        return json.dumps({"build_seconds": 0.05})

    @classmethod
    def make_engine(cls, context: RunnerContext) -> MeasureEngine:
        return SupervisedEngine(context, ThreadCluster())

    def test_a_supervisor_that_ends_takes_no_job_with_it(self, host: EngineHost) -> None:
        cluster = cluster_of(host)
        # Answers of supervisors that an earlier test has closed may be late.
        host.engine.poll(0.3)
        host.engine.take_warnings()
        artefact, machine = host.built(), host.timer()
        with host.leased(machine) as lease:
            assert host.reply(host.run(artefact, machine)).kind == "done"
            supervisor = cluster.living(times=True)[0]
            # A slow thread here would let the first be answered before the end.
            supervisor.freeze()
            waiting, behind = host.sample(machine), host.sample(machine)
            supervisor.die("killed by SIGKILL")
            # What it was at may be to blame, and nothing is done again by itself.
            assert host.reply(waiting).kind == "lost" and host.reply(behind).kind == "again"
            assert not lease.is_valid
        host.wait(lambda: any(it.name == machine.name for it in host.engine.machines()))
        assert host.timer().incarnation > machine.incarnation
        assert host.engine.take_warnings() == [
            f"machine {machine.name!r} is lost: killed by SIGKILL"
        ]
        with host.leased(host.timer()):
            # The task was told to the new one, too.
            assert host.reply(host.run(artefact, host.timer())).kind == "done"

    def test_an_answer_that_comes_twice_counts_once(self, host: EngineHost) -> None:
        cluster = cluster_of(host)
        host.engine.poll(0.3)
        host.engine.take_warnings()
        cluster.fault = lambda data: [data, data]
        try:
            replies = [host.reply(future) for future in [host.build() for _ in range(3)]]
            assert [reply.kind for reply in replies] == ["done"] * 3
            host.wait(lambda: dropped_by(host) == 3)
            host.engine.poll(0.3)
        finally:
            cluster.fault = unchanged
        [warning] = host.engine.take_warnings()
        assert "dropped 3 answers that came late or twice" in warning

    def test_equal_programs_that_are_built_at_the_same_time_are_all_answered(
        self, host: EngineHost, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one_by_one = WorkerPool.poll

        def all_at_once(pool: WorkerPool, seconds: float) -> list[Reply]:
            """Return replies once all that was begun is done, as a slow thread finds them."""
            replies = one_by_one(pool, seconds)
            while pool.is_ready and not pool.idle:
                replies += one_by_one(pool, seconds)
            return replies

        monkeypatch.setattr(WorkerPool, "poll", all_at_once)
        replies = [host.reply(future) for future in [host.build() for _ in range(4)]]
        assert [reply.kind for reply in replies] == ["done"] * 4, replies
        assert len({reply.body["artefact"] for reply in replies}) == 1

    def test_nothing_builds_on_a_host_while_there_is_a_lease_there(self, host: EngineHost) -> None:
        with host.leased(host.timer()):
            waiting = host.build()
            host.engine.poll(0.3)
            assert not waiting.done()
        assert host.reply(waiting).kind == "done"

    def test_a_node_that_leaves_gives_its_builds_to_others(self, host: EngineHost) -> None:
        cluster = cluster_of(host)
        cluster.present.append(Node("two", 1))
        host.wait(lambda: any(it.name == "two" for it in host.engine.machines()))
        first, second = (it for it in host.engine.machines() if "time" in it.roles)
        assert first.lease_group == second.lease_group
        assert first.fingerprint is not None and second.fingerprint is not None
        assert first.fingerprint.equals(second.fingerprint)
        cluster.present.pop(0)
        host.wait(lambda: all(it.name.startswith("two") for it in host.engine.machines()))
        assert host.reply(host.build()).kind == "done"


class TestLocalEngine(EngineSuite):
    @classmethod
    def context(cls) -> RunnerContext:
        return engine_context(SCRIPTED_NATIVE, target=detect_cpu(), options={"builders": 1})

    @classmethod
    def program(cls) -> str:
        # Longer than the deadline of a job that is to be late.
        return json.dumps({"build_seconds": 0.05})

    @classmethod
    def make_engine(cls, context: RunnerContext) -> MeasureEngine:
        return LocalEngine(context)

    def test_a_killed_timer_is_replaced_and_its_job_is_not_repeated(
        self, host: EngineHost
    ) -> None:
        artefact, machine = host.built(), host.timer()
        engine = host.engine
        assert isinstance(engine, LocalEngine)
        with host.leased(machine):
            assert host.reply(host.run(artefact, machine)).kind == "done"
            _, timer = engine.pids[machine.name]
            os.kill(timer, signal.SIGSTOP)
            waiting = host.sample(machine)
            os.kill(timer, signal.SIGKILL)
            assert host.reply(waiting).kind in ("died", "lost")
            host.wait(lambda: host.timer().incarnation > machine.incarnation)
            assert host.reply(host.sample(machine)).kind == "again"
            assert host.reply(host.run(artefact, host.timer())).kind == "done"


def test_wrong_options_are_named() -> None:
    with pytest.raises(InvalidValueError, match="between 0 and 256, not -1"):
        LocalEngine(engine_context(options={"builders": -1}))
    with pytest.raises(InvalidValueError, match="no option 'builder'.*Did you mean 'builders'"):
        LocalEngine(engine_context(options={"builder": 1}))


def test_a_machine_that_falls_silent_is_given_up_and_its_late_answer_dropped(
    tmp_path: Path,
) -> None:
    cluster = ThreadCluster()
    with started(cluster, tmp_path, silence=2.0) as host:
        silent = cluster.living(times=False)[0]
        silent.freeze()
        assert host.reply(host.build()).kind == "lost"
        host.wait(lambda: silent.is_over)
        silent.frozen.clear()
        host.wait(lambda: cluster.living(times=False))
        # Others may fall silent, too, on a busy machine.
        host.wait(lambda: host.reply(host.build()).kind == "done")
        host.wait(lambda: dropped_by(host) >= 1)
        warnings = "\n".join(host.engine.take_warnings())
        assert "(builds)' is lost: it said nothing for 2 s" in warnings
        assert "late or twice" in warnings


@pytest.mark.parametrize("is_here", [False, True])
def test_a_machine_without_the_backend_is_given_up_in_one_line(
    tmp_path: Path, is_here: bool
) -> None:
    cluster, other = ThreadCluster(), "no such backend"
    cluster.is_here = is_here
    # No other machine would do instead of this one: that it does not build is enough.
    cluster.supervisor_of = lambda setup: (
        setup if is_here and setup.times else evolve(setup, backend=other)
    )
    engine = SupervisedEngine(engine_context(), cluster)
    with engine:
        engine.start(ArtefactStore(tmp_path))
        with pytest.raises(WorkerStartFailed, match="machine 'one.*no such backend"):
            for _ in range(6000):
                engine.poll(0.05)
    assert all(len(line.splitlines()) == 1 for line in engine.take_warnings())


def test_a_node_with_too_few_processors_only_builds(tmp_path: Path) -> None:
    context = evolve(engine_context(), threads=2)
    with SupervisedEngine(context, ThreadCluster()) as engine:
        engine.start(ArtefactStore(tmp_path))
        for _ in range(6000):
            engine.poll(0.05)
            if engine.machines():
                break
        assert [it.roles for it in engine.machines()] == [{"build"}]
        assert engine.take_warnings() == [
            "machine 'one' only builds: it offers 1 processors, and programs use 2"
        ]


class Occupied(ThreadCluster):
    """A cluster where nothing begins, as others have what it would need."""

    def supervise(
        self, node: Node, setup: SupervisorSetup, cpus: int, gpus: int, on_event: OnEvent
    ) -> Supervised:
        self.asked = [*getattr(self, "asked", ()), (setup.times, cpus)]
        return Mute()


class Mute:
    def send(self, command: bytes, contents: Sequence[object]) -> None:
        """Nobody is there."""

    def kill(self) -> None:
        """Nobody is there."""


def test_a_machine_waits_for_its_node_and_owns_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.measure.engines.supervised._SLOW_START_SECONDS", 0.2)
    protocol = MeasureProtocol(deadlines={"start": 0.4})
    cluster = Occupied()
    cluster.present = [Node("one", 4)]
    with SupervisedEngine(engine_context(protocol=protocol), cluster) as engine:
        engine.start(ArtefactStore(tmp_path))
        for _ in range(16):
            engine.poll(0.05)
        # It is not given up: others may end at any time.
        assert engine.take_warnings() == [
            f"machine {name!r} has not started for 0.2 s: it waits for the processors of its "
            "node, which another run or another user of the cluster has"
            for name in ("one", "one (builds)")
        ]
        pool = EnginePool(engine, ArtefactStore(tmp_path), {"start": 0.1})
        with pytest.raises(WorkerStartFailed, match="no machine that times after 0.1 s"):
            pool.wait_ready()
    assert sorted(cluster.asked) == [(False, 0), (True, 4)]


def test_nodes_that_offer_nothing_are_named(tmp_path: Path) -> None:
    cluster = ThreadCluster()
    cluster.present = [Node("head", 0)]
    with SupervisedEngine(engine_context(), cluster) as engine:
        engine.start(ArtefactStore(tmp_path))
        pool = EnginePool(engine, ArtefactStore(tmp_path), {"start": 0.1})
        with pytest.raises(WorkerStartFailed, match=r"no node .* offers a processor .*: head$"):
            pool.wait_ready()


def test_commands_are_done_in_the_order_of_their_numbers() -> None:
    supervisor = Supervisor(setup_of(engine_context()), lambda _: None)
    try:
        build = {"op": "build", "task": "none", "number": 1}
        deadlines = {"build": 10.0, "observe": 10.0}
        commands = [
            {"do": "job", "number": at + 1, "generation": None, "deadlines": deadlines}
            | {"message": build, "sequence": at, "artefacts": []}
            for at in range(3)
        ]
        for command in reversed(commands):
            supervisor.send(encode(command), ())
        numbers: list[int] = []

        def have_come() -> bool:
            numbers.extend(it["number"] for it in decoded(supervisor.take())["replies"])
            return len(numbers) >= 3

        assert becomes_true(have_come)
        assert numbers == [1, 2, 3]
    finally:
        supervisor.close()


def test_a_damaged_content_is_refused_by_the_machine() -> None:
    supervisor = Supervisor(setup_of(engine_context()), lambda _: None)
    try:
        command = {"do": "job", "number": 1, "generation": None, "deadlines": {"run": 1.0}}
        command |= {"message": {"op": "run"}, "sequence": 0, "artefacts": ["0" * 64]}
        supervisor.send(encode(command), [b"other content"])
        replies: list[Any] = []
        assert becomes_true(
            lambda: replies.extend(decoded(supervisor.take())["replies"]) or replies
        )
        [reply] = replies
        assert reply["kind"] == "failed" and reply["message"].startswith("DamagedArtefact")
    finally:
        supervisor.close()


def setup_of(context: RunnerContext) -> SupervisorSetup:
    deadlines = dict(context.protocol.deadlines)
    return SupervisorSetup(context.backend, 1, context.protocol.identity, deadlines, 1, False)


def dropped_by(host: EngineHost) -> int:
    """Answers that were dropped, and of which no warning has told yet."""
    assert isinstance(host.engine, SupervisedEngine)
    ledger = host.engine._ledger
    return ledger._dropped - ledger._told


def cluster_of(host: EngineHost) -> ThreadCluster:
    assert isinstance(host.engine, SupervisedEngine)
    assert isinstance(host.engine._cluster, ThreadCluster)
    return host.engine._cluster


@contextmanager
def started(cluster: ThreadCluster, folder: Path, silence: float) -> Iterator[EngineHost]:
    """A started engine that knows a task."""
    context = engine_context()
    store = ArtefactStore(folder)
    with SupervisedEngine(context, cluster, silence=silence) as engine:
        host = EngineHost(engine, store, context, gemm(m=8, n=8, k=8))
        engine.start(store)
        host.timer()
        host.wait(lambda: any("build" in it.roles for it in engine.machines()))
        host.tell()
        yield host

"""Conformance of engines: what every :class:`~autotune.measure.engines.MeasureEngine` keeps to.

Subclass :class:`EngineSuite` in a test module, and say how the engine is made:

    class TestMyEngine(EngineSuite):
        @classmethod
        def make_engine(cls, context: Context) -> MeasureEngine:
            return MyEngine(context)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field

from autotune.ir.workloads import Workload, gemm
from autotune.measure import MeasureProtocol
from autotune.measure.engines import (
    REPLY_KINDS,
    ArtefactStore,
    Job,
    Machine,
    MeasureEngine,
    Reply,
    RunnerContext,
)
from autotune.measure.validation import reserve_reference
from autotune.targets import Target
from autotune.testing.reference_backend import REFERENCE_BACKEND

__all__ = ["EngineHost", "EngineSuite", "engine_context"]

_TASK = "task 1"
# In which something that a test waits for has to happen, on a busy machine, too.
_PATIENCE = 180.0


def engine_context(
    backend: str = REFERENCE_BACKEND,
    *,
    target: Target | None = None,
    options: dict[str, Any] | None = None,
    protocol: MeasureProtocol | None = None,
) -> RunnerContext:
    """Make the context of an engine in these tests."""
    return RunnerContext(
        backend=backend,
        target=target or Target("cpu", "test", cores=1),
        threads=1,
        protocol=protocol or MeasureProtocol(),
        options=options or {},
    )


@define
class EngineHost:
    """The host's side of a started engine.

    Attributes:
        engine: The engine.
        store: The host's artefacts.
        context: What the engine was made from.
        workload: What programs compute.
        program: Text of the imported program, or None.
    """

    engine: MeasureEngine
    store: ArtefactStore
    context: RunnerContext
    workload: Workload
    program: str | None = None
    _last: int = field(default=0, init=False)
    _loaded: int = field(default=0, init=False)

    def wait(self, condition: Callable[[], object]) -> None:
        """Poll until something is so."""
        end = time.monotonic() + _PATIENCE
        while not condition():
            assert time.monotonic() < end, "what was waited for has not happened"
            self.engine.poll(0.05)

    def timer(self) -> Machine:
        """A machine that times."""
        self.wait(lambda: any("time" in it.roles for it in self.engine.machines()))
        return next(it for it in self.engine.machines() if "time" in it.roles)

    def tell(self) -> None:
        """Tell the engine of the task."""
        files = reserve_reference(self.workload, 0)
        files.fill()
        kept = [
            [self.store.add_bytes(Path(path).read_bytes()) for path in paths]
            for paths in (files.inputs, files.outputs)
        ]
        files.close()
        message = {
            "op": "task",
            "task": _TASK,
            "workload": self.workload.to_json(),
            "program": self.program,
            "target": self.context.target.to_json(),
            "threads": self.context.threads,
            "cpus": [],
            "quick": True,
            "protocol": self.context.protocol.to_json(),
            "seed": 0,
            "observers": [],
            "inputs": kept[0],
            "outputs": kept[1],
            "stored": True,
        }
        self.engine.tell(_TASK, message, [*kept[0], *kept[1]], replace=True)

    def build(self, *, seconds: float | None = None) -> Future[Reply]:
        """Have the untuned program built."""
        self._last += 1
        message = {
            "op": "build",
            "task": _TASK,
            "number": self._last,
            "candidate": None,
            "always": True,
            "observe": False,
            "export": True,
        }
        deadlines = self.context.protocol.deadlines
        wanted = deadlines["build"] if seconds is None else seconds
        return self.engine.submit(Job(message, {"build": wanted, "observe": deadlines["observe"]}))

    def run(self, artefact: str, machine: Machine) -> Future[Reply]:
        """Have a program loaded, checked and timed."""
        self._last += 1
        self._loaded = self._last
        message = {
            "op": "run",
            "task": _TASK,
            "number": self._loaded,
            "incumbent": None,
            "observe": False,
            "artefact": artefact,
            "candidate": None,
            "timings": {},
        }
        return self._time(message, machine, (artefact,))

    def sample(self, machine: Machine) -> Future[Reply]:
        """Have the program timed that was loaded last."""
        message = {
            "op": "sample",
            "task": _TASK,
            "number": self._loaded,
            "count": 2,
            "placement": 1,
            "expected": 1e-3,
            "observe": False,
        }
        return self._time(message, machine, ())

    def _time(
        self, message: dict[str, Any], machine: Machine, artefacts: tuple[str, ...]
    ) -> Future[Reply]:
        deadlines = self.context.protocol.deadlines
        phases = {name: deadlines[name] for name in ("task", "load", "verify", "run", "observe")}
        return self.engine.submit(Job(message, phases, machine.place, artefacts))

    def reply(self, future: Future[Reply]) -> Reply:
        """The reply to a job."""
        self.wait(future.done)
        return future.result()

    def built(self) -> str:
        """The artefact of a program."""
        reply = self.reply(self.build())
        assert reply.kind == "done", reply
        artefact: str = reply.body["artefact"]
        return artefact

    def leased(self, machine: Machine, seconds: float = 600.0) -> Any:
        """A lease on a machine."""
        found: list[Any] = []

        def is_given() -> bool:
            lease = self.engine.lease(machine.name, seconds)
            found.extend([lease] if lease is not None else [])
            return lease is not None

        self.wait(is_given)
        return found[0]


class EngineSuite:
    """Tests of one engine; see the module's description."""

    @classmethod
    def context(cls) -> RunnerContext:
        """Context that the engine is made from."""
        return engine_context()

    @classmethod
    def make_engine(cls, context: RunnerContext) -> MeasureEngine:
        """The engine, not started."""
        raise NotImplementedError("override `make_engine`")

    @classmethod
    def program(cls) -> str | None:
        """Text of the imported program, or None; to build it takes more than a millisecond."""
        return None

    @pytest.fixture(scope="class")
    @classmethod
    def host(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineHost]:
        """The started engine, which knows the task; one for all tests, as starting takes long."""
        context = cls.context()
        store = ArtefactStore(tmp_path_factory.mktemp("artefacts"))
        with cls.make_engine(context) as engine:
            host = EngineHost(engine, store, context, gemm(m=8, n=8, k=8), cls.program())
            engine.start(store)
            engine.start(store)
            host.timer()
            host.wait(lambda: any("build" in it.roles for it in engine.machines()))
            host.tell()
            yield host

    def test_machines_say_what_they_are(self, host: EngineHost) -> None:
        machines = host.engine.machines()
        assert len({it.name for it in machines}) == len(machines)
        assert any("build" in it.roles and it.slots >= 1 for it in machines)
        for machine in machines:
            assert machine.roles <= {"build", "time"} and machine.roles
            assert ("time" in machine.roles) == (machine.fingerprint is not None)
            if machine.fingerprint is not None:
                assert machine.fingerprint.device and machine.lease_group
                assert machine.fingerprint.protocol == host.context.protocol.identity
                timed = machine.fingerprint.reference_seconds > 0
                assert timed != host.engine.simulates
        assert set(host.engine.versions) >= {"backend_version", "compiler_version"}

    def test_each_job_gets_one_reply_and_only_inside_poll(self, host: EngineHost) -> None:
        done: list[Reply] = []
        futures = [host.build() for _ in range(5)]
        for future in futures:
            future.add_done_callback(lambda it: done.append(it.result()))
        time.sleep(0.2)
        assert not done
        host.wait(lambda: all(future.done() for future in futures))
        assert [reply.kind for reply in done] == ["done"] * 5
        assert set(REPLY_KINDS) > {reply.kind for reply in done}
        host.engine.poll(0.1)
        assert len(done) == 5 and host.engine.take_warnings() == []

    def test_an_artefact_is_what_its_name_says(self, host: EngineHost) -> None:
        artefact = host.built()
        content = host.store.content(artefact)
        assert content and host.store.add_bytes(content) == artefact

    def test_a_program_is_timed_elsewhere_than_it_was_built(self, host: EngineHost) -> None:
        artefact, machine = host.built(), host.timer()
        with host.leased(machine):
            first = host.reply(host.run(artefact, machine))
            assert first.kind == "done" and min(first.body["samples"]) > 0, first
            assert first.place == machine.place
            again = host.reply(host.sample(machine))
            assert again.kind == "done" and len(again.body["samples"]) == 2

    def test_nothing_is_timed_without_a_lease(self, host: EngineHost) -> None:
        artefact, machine = host.built(), host.timer()
        assert host.reply(host.run(artefact, machine)).kind == "again"
        with host.leased(machine):
            assert host.reply(host.run(artefact, machine)).kind == "done"
        assert host.reply(host.sample(machine)).kind == "again"

    def test_a_lease_keeps_others_of_its_group_away(self, host: EngineHost) -> None:
        machine = host.timer()
        with host.leased(machine) as lease:
            assert lease.is_valid
            for other in host.engine.machines():
                if other.lease_group == machine.lease_group and "time" in other.roles:
                    assert host.engine.lease(other.name, 600.0) is None
        assert not lease.is_valid
        lease.release()
        with host.leased(machine) as second:
            # Giving an old one back takes nothing from its successor.
            lease.release()
            assert second.is_valid
        assert host.engine.lease("no such machine", 600.0) is None

    def test_a_lease_runs_out(self, host: EngineHost) -> None:
        artefact, machine = host.built(), host.timer()
        lease = host.leased(machine, 0.2)
        time.sleep(0.3)
        assert not lease.is_valid
        assert host.reply(host.run(artefact, machine)).kind == "again"
        with host.leased(machine):
            assert host.reply(host.run(artefact, machine)).kind == "done"

    def test_a_damaged_program_is_not_run(self, host: EngineHost) -> None:
        artefact, machine = host.built(), host.timer()
        path = host.store.path(artefact)
        path.write_bytes(path.read_bytes() + b"!")
        with host.leased(machine):
            reply = host.reply(host.run(artefact, machine))
        assert reply.kind == "failed" and reply.message.startswith("DamagedArtefact"), reply

    def test_an_earlier_incarnation_is_not_asked(self, host: EngineHost) -> None:
        artefact, machine = host.built(), host.timer()
        gone = evolve(machine, incarnation=machine.incarnation + 7)
        with host.leased(machine):
            assert host.reply(host.run(artefact, gone)).kind == "again"

    def test_a_job_that_is_late_is_ended(self, host: EngineHost) -> None:
        # On a busy machine an answer may be there before the host looks at the time.
        late = next(
            (
                it
                for it in (host.reply(host.build(seconds=1e-4)) for _ in range(9))
                if it.kind != "done"
            ),
            Reply("done"),
        )
        # Not a timeout where it ends before it has begun.
        assert late.kind in ("timeout", "lost") and "took more than" in late.message, late
        assert host.built()

    def test_every_job_is_answered_when_all_is_cancelled(self, host: EngineHost) -> None:
        futures = [host.build() for _ in range(4)]
        host.engine.cancel()
        assert [future.result().kind for future in futures] == ["again"] * 4
        assert host.built()

    def test_a_closed_engine_answers_and_starts_again(self, host: EngineHost) -> None:
        waiting = host.build()
        host.engine.close()
        host.engine.close()
        assert waiting.result().kind == "again"
        assert host.engine.machines() == []
        after = host.build()
        host.engine.poll(0.0)
        assert after.result().kind == "again"
        host.engine.start(host.store)
        host.timer()
        host.tell()
        assert host.built()

    def test_the_speed_of_a_machine_is_what_its_fingerprint_says(self, host: EngineHost) -> None:
        machine = host.timer()
        with host.leased(machine):
            seconds = host.engine.check_speed(machine.name)
        if host.engine.simulates:
            assert seconds is None
        else:
            assert seconds is not None and seconds > 0
            assert machine.fingerprint is not None
            drift = seconds / machine.fingerprint.reference_seconds
            assert host.timer().drift == pytest.approx(drift)
        assert host.engine.check_speed("no such machine") is None

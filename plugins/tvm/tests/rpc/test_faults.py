"""Programs, servers and trackers that fail, on real ones."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from autotune_tvm.rpc.engine import RPCEngine
from autotune_tvm.rpc.tracker import Tracker
from process_facts import becomes_true
from rpc_programs import N, artefact
from rpc_servers import RPCFleet

from autotune.ir.workloads import gemm
from autotune.measure import MeasureProtocol
from autotune.measure.engines import ArtefactStore, Machine, Reply
from autotune.process.errors import WorkerStartFailed
from autotune.targets import detect_cpu
from autotune.testing.engine_suite import EngineHost, engine_context

PROTOCOL = MeasureProtocol(deadlines={"verify": 3.0, "run": 4.0}, max_samples=5)


@contextmanager
def started(fleet: RPCFleet, folder: Path, **options: Any) -> Iterator[EngineHost]:
    """An engine on servers that knows a task."""
    given = fleet.options(session_timeout=12.0, **options)
    context = engine_context("native", target=detect_cpu(), options=given, protocol=PROTOCOL)
    artefacts = folder / "artefacts"
    artefacts.mkdir(exist_ok=True)
    store = ArtefactStore(artefacts)
    with RPCEngine(context) as engine:
        host = EngineHost(engine, store, context, gemm(m=N, n=N, k=N))
        engine.start(store)
        host.timer()
        host.tell()
        yield host


def timed(host: EngineHost, folder: Path, name: str, machine: Machine | None = None) -> Reply:
    """The reply to a run of a program; on whichever machine is there."""
    digest = host.store.add_bytes(artefact(folder, name))
    for _ in range(20):
        chosen = machine or host.timer()
        with host.leased(chosen):
            reply = host.reply(host.run(digest, chosen))
        # Its process was replaced in between, or the server was lost while nothing ran there.
        if machine is not None or reply.kind not in ("again", "lost"):
            break
    return reply


def assert_right(reply: Reply) -> None:
    assert reply.kind == "done" and min(reply.body["samples"]) > 0, reply


def outcome(reply: Reply) -> tuple[str, str]:
    """Status and message of a run that has failed, its process alive."""
    assert reply.kind == "done", reply
    return reply.body["outcome"]["status"], reply.body["outcome"]["message"]


@pytest.mark.slow
class TestPrograms:
    """Programs that fail; the servers outlive all of them."""

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("programs")

    @pytest.fixture(scope="class")
    @classmethod
    def fleet(cls, folder: Path) -> Iterator[RPCFleet]:
        with RPCFleet(folder, servers=2) as fleet:
            yield fleet

    @pytest.fixture(scope="class")
    @classmethod
    def host(cls, fleet: RPCFleet, folder: Path) -> Iterator[EngineHost]:
        with started(fleet, folder) as host:
            yield host

    @pytest.fixture(autouse=True)
    def right_afterwards(self, host: EngineHost, folder: Path) -> Iterator[None]:
        yield
        assert_right(timed(host, folder, "right"))

    def test_a_wrong_result(self, host: EngineHost, folder: Path) -> None:
        status, message = outcome(timed(host, folder, "wrong"))
        assert status == "wrong_result" and "1 of 64 elements are wrong" in message

    def test_an_input_that_is_written_to_is_named_and_restored(
        self, host: EngineHost, folder: Path
    ) -> None:
        for _ in range(2):
            status, message = outcome(timed(host, folder, "writes_input"))
            assert (status, message) == ("wrong_result", "input 'A' was changed")
            assert_right(timed(host, folder, "right"))

    @pytest.mark.parametrize("name", ["crashes", "aborts", "crashes_later"])
    def test_a_program_that_ends_the_session(
        self, host: EngineHost, folder: Path, fleet: RPCFleet, name: str
    ) -> None:
        status, message = outcome(timed(host, folder, name))
        assert status == "crash"
        assert "ended while the program ran: RPC server 127.0.0.1:" in message
        # TVM's own server would serve no more after a signal.
        with Tracker(fleet.tracker) as tracker:
            assert len(tracker.servers(fleet.key).servers) == 2

    def test_a_program_that_hangs_is_ended_at_its_deadline(
        self, host: EngineHost, folder: Path
    ) -> None:
        reply = timed(host, folder, "hangs")
        assert reply.kind == "timeout" and reply.message == "verify took more than 3 s"


@pytest.mark.long
def test_a_server_that_a_program_ends(tmp_path: Path) -> None:
    """The program is to blame; other servers take what comes then."""
    with RPCFleet(tmp_path, servers=3) as fleet, started(fleet, tmp_path) as host:
        for name in ("ends_server", "exits"):
            status, message = outcome(timed(host, tmp_path, name))
            assert status == "crash" and "ended while the program ran" in message
        assert_right(timed(host, tmp_path, "right"))
        assert len([it for it in host.engine.machines() if "time" in it.roles]) >= 1


@pytest.mark.long
def test_a_server_that_is_killed_between_programs_costs_nothing(tmp_path: Path) -> None:
    with RPCFleet(tmp_path, servers=2) as fleet, started(fleet, tmp_path, servers=1) as host:
        assert_right(timed(host, tmp_path, "right"))
        machine = host.timer()
        # The one that is not in use serves now.
        for server in fleet.servers:
            fleet.kill(server)
        fleet.start_server()
        fleet.await_free(1)
        reply = timed(host, tmp_path, "right")
        assert_right(reply)
        assert reply.place[0] == machine.name


@pytest.mark.long
def test_without_any_server_one_clear_error_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune_tvm.rpc.engine._MOST_SECONDS_WITHOUT", 0.0)
    with RPCFleet(tmp_path, servers=1) as fleet, started(fleet, tmp_path) as host:
        fleet.kill(fleet.servers[0])
        with pytest.raises(WorkerStartFailed, match=r"no RPC server for 12 s: .*key 'board'"):
            for _ in range(100):
                machines = [it for it in host.engine.machines() if "time" in it.roles]
                if machines and (lease := host.engine.lease(machines[0].name, 60.0)):
                    digest = host.store.add_bytes(artefact(tmp_path, "right"))
                    with lease:
                        host.reply(host.run(digest, machines[0]))
                host.engine.poll(0.5)


@pytest.mark.long
def test_a_server_that_stands_still_is_left(tmp_path: Path) -> None:
    with RPCFleet(tmp_path, servers=2) as fleet, started(fleet, tmp_path, servers=1) as host:
        for server in fleet.servers:
            fleet.signal(server, signal.SIGSTOP)
        machine = host.timer()
        reply = timed(host, tmp_path, "right", machine)
        assert reply.kind in ("timeout", "lost"), reply
        for server in fleet.servers:
            fleet.signal(server, signal.SIGCONT)
        assert_right(timed(host, tmp_path, "right"))


@pytest.mark.long
def test_a_tracker_that_is_gone_is_named_and_found_again(tmp_path: Path) -> None:
    with RPCFleet(tmp_path, servers=1) as fleet, started(fleet, tmp_path) as host:
        fleet.kill_tracker()
        # A session does not need it.
        assert_right(timed(host, tmp_path, "right"))
        warnings: list[str] = []
        host.wait(lambda: warnings.extend(host.engine.take_warnings()) or warnings)
        assert any(f"no RPC tracker at {fleet.tracker}" in warning for warning in warnings)
        fleet.start_tracker()
        time.sleep(12.0)  # The session is over then.
        assert_right(timed(host, tmp_path, "right"))


_PRELOADED = """
#include <stdint.h>
void TVMFFIGetVersion(uint32_t *version) { version[0] = 0; version[1] = 1; version[2] = 99; }
"""
_OTHER_COMPILER = """#!/bin/sh
# Makes shared libraries of AArch64 by their headers.
case "$*" in *print-prog-name*) exit 0 ;; esac
cc "$@" || exit 1
out=""; for word; do [ "$last" = -o ] && out="$word"; last="$word"; done
case "$*" in *-shared*) printf '\\267' | dd of="$out" bs=1 seek=18 conv=notrunc status=none ;; esac
"""


@pytest.mark.long
def test_servers_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """One of another architecture, and one with too few threads: neither ever times anything."""
    compiler = tmp_path / "other-cc"
    compiler.write_text(_OTHER_COMPILER)
    compiler.chmod(0o755)
    with RPCFleet(tmp_path, servers=1) as fleet:
        given = fleet.options(cc=str(compiler))
        context = engine_context("native", target=detect_cpu(), options=given)
        with RPCEngine(context) as engine:
            engine.start(ArtefactStore(tmp_path))
            with pytest.raises(WorkerStartFailed, match="cannot load programs of the compiler"):
                wait_for_machines(engine)
        fleet.await_free(1)
        two = evolve(
            engine_context("native", target=detect_cpu(), options=fleet.options()), threads=2
        )
        with RPCEngine(two) as engine:
            engine.start(ArtefactStore(tmp_path))
            said = (
                "runs programs on 1 threads, and 2 are asked for: start it with TVM_NUM_THREADS=2"
            )
            with pytest.raises(WorkerStartFailed, match=said):
                wait_for_machines(engine)


@pytest.mark.long
def test_a_server_of_another_version_is_told_apart(tmp_path: Path) -> None:
    source, library = tmp_path / "version.c", tmp_path / "version.so"
    source.write_text(_PRELOADED)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    with RPCFleet(tmp_path, servers=1) as fleet:
        fleet.start_server({"LD_PRELOAD": str(library)})
        fleet.await_free(2)
        with started(fleet, tmp_path) as host:
            found = [it.fingerprint for it in host.engine.machines() if it.fingerprint]
            assert len(found) == 2 and not found[0].equals(found[1])
            (said,) = found[0].differences(found[1])
            assert said.startswith("compiler ") and "ffi 0.1.99" in said


def wait_for_machines(engine: RPCEngine) -> None:
    """Poll until there is a machine that times, or no hope."""
    assert becomes_true(
        lambda: engine.poll(0.1) or any("time" in it.roles for it in engine.machines())
    )

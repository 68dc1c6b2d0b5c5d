"""Programs, servers and trackers that fail, on real ones."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from autotune_tvm.artefact import LIBRARY
from autotune_tvm.rpc.engine import RPCEngine
from autotune_tvm.rpc.toolchain import Toolchain
from autotune_tvm.rpc.tracker import Tracker
from process_facts import becomes_true
from rpc_servers import RPCFleet

from autotune.ir.workloads import gemm
from autotune.measure import MeasureProtocol
from autotune.measure.engines import ArtefactStore, Machine, Reply
from autotune.process.errors import WorkerStartFailed
from autotune.targets import detect_cpu
from autotune.testing.engine_suite import EngineHost, engine_context

N = 8
"""Extent of the square matrices that they multiply."""

_SOURCE = """
#include <signal.h>
#include <stdint.h>
#include <unistd.h>
typedef struct { int32_t type_index; uint32_t padding; void *pointer; } Any;
typedef struct { float *data; } Tensor;
static float *data(const Any *it) {
  char *at = it->pointer;
  return ((Tensor *)(it->type_index == 70 ? at + 24 : at))->data;
}
int32_t __tvm_ffi_main(void *self, const Any *args, int32_t count, void *result) {
  float *A = data(args), *B = data(args + 1), *C = data(args + 2);
  static int calls = 0;
  ++calls;
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) {
      float sum = 0;
      for (int k = 0; k < N; ++k) sum += A[i * N + k] * B[k * N + j];
      C[i * N + j] = sum;
    }
  BODY
  return 0;
}
"""

BODIES = {
    "right": "",
    "wrong": "C[N * N - 1] += 1;",
    "writes_input": "A[0] += 1;",
    "crashes": "*(volatile int *)0 = 1;",
    "crashes_later": "if (calls > 3) *(volatile int *)0 = 1;",
    "exits": "_exit(3);",
    "aborts": "kill(getpid(), SIGABRT);",
    "hangs": "for (;;) pause();",
    "ends_server": "kill(getppid(), SIGKILL); kill(getpid(), SIGKILL);",
    "slow": "usleep(300000);",
}
"""Faults that follow the product, by name."""


def artefact(folder: Path, name: str) -> bytes:
    """The content of the artefact of a program."""
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(
        _SOURCE.replace("BODY", BODIES[name]).replace("#include", f"#define N {N}\n#include", 1)
    )
    toolchain = Toolchain()
    helper = toolchain.probe(folder).with_name("autotune_helper.o")
    command = [*toolchain.check(), "-shared", "-fPIC", "-O1", "-o", str(library)]
    subprocess.run([*command, str(source), str(helper)], check=True)
    path = folder / f"{name}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(LIBRARY, library.read_bytes())
        described = {"arguments": ["A", "B", "C"], "digest": name, "packed": []}
        archive.writestr("program.json", json.dumps(described))
    return path.read_bytes()


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


ENDED = r"ended while the program ran: RPC server 127\.0\.0\.1:"
# In turn, with a right one after each.
PROGRAMS = (
    ("wrong", "wrong_result", "1 of 64 elements are wrong"),
    ("writes_input", "wrong_result", "^input 'A' was changed$"),
    # It is restored.
    ("writes_input", "wrong_result", "^input 'A' was changed$"),
    ("crashes", "crash", ENDED),
    ("aborts", "crash", ENDED),
    ("crashes_later", "crash", ENDED),
)


@pytest.mark.slow
def test_the_servers_outlive_programs_that_fail(tmp_path: Path) -> None:
    with RPCFleet(tmp_path, servers=2) as fleet, started(fleet, tmp_path) as host:
        for name, status, message in PROGRAMS:
            found, said = outcome(timed(host, tmp_path, name))
            assert found == status and re.search(message, said), (name, found, said)
            # TVM's own server would serve no more after a signal.
            with Tracker(fleet.tracker) as tracker:
                assert len(tracker.servers(fleet.key).servers) == 2
            assert_right(timed(host, tmp_path, "right"))
        # One that hangs is ended at its deadline.
        reply = timed(host, tmp_path, "hangs")
        assert reply.kind == "timeout" and reply.message == "verify took more than 3 s"
        assert_right(timed(host, tmp_path, "right"))


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
    """Servers of another architecture, or with too few threads, never time anything."""
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

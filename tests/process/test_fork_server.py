"""Workers are copies of a process that has imported what they need, and differ from new
interpreters in nothing else."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from process_facts import becomes_true, children_of, open_descriptors, zombies_of

from autotune.process import (
    Message,
    WorkerProcess,
    WorkerStartFailed,
    ask_once,
    fork_server_process,
    prepare_workers,
)

SECONDS = 300.0


@pytest.fixture(autouse=True)
def new_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No worker of another test is forked from the same process."""
    monkeypatch.setenv("OTHER_SERVER", "of this test")
    yield
    fork_server_process._end_all()


def described(threads: int = 1, **question: Any) -> Message:
    asked = {"op": "describe", "modules": [], "variables": [], **question}
    answer: Message = ask_once("answering_child", asked, threads, SECONDS)["done"]
    return answer


def server() -> int:
    """Process id of the server that was used last."""
    return list(fork_server_process._servers.values())[-1]._process.pid


def test_workers_of_one_environment_are_of_one_server() -> None:
    first = described()
    one = server()
    assert described()["pid"] != first["pid"]
    assert server() == one
    assert one in children_of(os.getpid())


def test_what_is_named_early_has_been_imported() -> None:
    modules = ["numpy", "autotune.ir.workloads.builders", "email.mime.text"]
    assert described(modules=modules)["imported"] == []
    prepare_workers("autotune.ir.workloads.builders", "autotune.no_such_module", "email.mime.text")
    # What is of another package could start threads, or never end.
    assert described(modules=modules)["imported"] == modules[:2]


def test_a_worker_has_what_its_host_has_when_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_OF_THIS_TEST", "ünïcode = 1")
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[-1:])
    try:
        found = described(variables=["AUTOTUNE_OF_THIS_TEST", "AUTOTUNE_FORK_SERVER_ROOM"])
    finally:
        os.sched_setaffinity(0, cpus)
    assert found["folder"] == str(tmp_path)
    assert found["cpus"] == cpus[-1:]
    assert found["variables"] == {
        "AUTOTUNE_OF_THIS_TEST": "ünïcode = 1",
        "AUTOTUNE_FORK_SERVER_ROOM": None,
    }
    monkeypatch.delenv("AUTOTUNE_OF_THIS_TEST")
    names = ["AUTOTUNE_OF_THIS_TEST"]
    assert described(variables=names)["variables"] == dict.fromkeys(names)


def test_what_a_library_reads_when_it_is_loaded_gets_another_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described()
    one = server()
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert described(variables=["MALLOC_ARENA_MAX"])["variables"] == {"MALLOC_ARENA_MAX": "2"}
    assert server() != one


@pytest.mark.parametrize("threads", [1, 2])
def test_matrix_products_use_the_threads_of_the_worker(threads: int) -> None:
    prepare_workers("autotune.ir.workloads.builders")
    found = described(threads, modules=["numpy"])
    assert found["imported"] == ["numpy"]
    assert set(found["blas"]) == {threads}


def test_where_something_starts_threads_workers_are_new_interpreters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = "import threading, time; threading.Thread(target=time.sleep, args=[60], daemon=True)"
    (tmp_path / "sitecustomize.py").write_text(f"{starts}.start()\n")
    monkeypatch.syspath_prepend(tmp_path)
    prepare_workers("autotune.ir.workloads.builders")
    found = described(modules=["numpy"], variables=["TMPDIR"])
    assert "alone" in found["command"]
    assert found["imported"] == []
    assert Path(found["variables"]["TMPDIR"]).name == "worker"


@pytest.mark.promise(
    "the process that workers are forked from is killed",
    "they go on, and the next worker is forked from another",
)
def test_workers_live_on_without_their_server(tmp_path: Path) -> None:
    worker = WorkerProcess("answering_child", {}, 1, {}, 1 << 33, tmp_path / "worker")
    worker.send({"op": "double", "number": 1})
    assert becomes_true(worker.receive)
    one = server()
    os.kill(one, signal.SIGKILL)
    assert becomes_true(lambda: not fork_server_process._servers or _has_ended(one))
    worker.send({"op": "double", "number": 2})
    assert becomes_true(lambda: {"done": {"is": 4}} in worker.receive())
    # The next one gets another.
    assert described()["pid"] != worker.pid
    assert server() != one
    assert worker.end() == "killed by its host"


def _has_ended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_worker_whose_server_dies_first_has_ended(tmp_path: Path) -> None:
    described()
    os.kill(server(), signal.SIGSTOP)
    worker = WorkerProcess("answering_child", {}, 1, {}, 1 << 33, tmp_path / "worker")
    os.kill(server(), signal.SIGKILL)
    assert becomes_true(lambda: not worker.alive)
    assert worker.end() == "ended before it had begun"
    assert not (tmp_path / "worker").exists()


def test_servers_that_were_used_longest_ago_go(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = []
    for number in range(fork_server_process._MOST_SERVERS + 2):
        monkeypatch.setenv("OTHER_SERVER", str(number))
        described()
        pids.append(server())
        assert zombies_of(os.getpid()) == []
    assert len(set(pids)) == len(pids)
    assert not {*pids[:2]} & {*children_of(os.getpid())}
    assert {*pids[2:]} <= {*children_of(os.getpid())}


def test_a_server_that_has_ended_is_reaped_with_the_next_worker() -> None:
    one = list[int]()

    def use() -> None:
        described()
        one.append(server())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert becomes_true(lambda: one[0] in zombies_of(os.getpid()))
    described()
    assert zombies_of(os.getpid()) == []


def test_one_that_cannot_be_started_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(fork_server_process._MOST_SERVERS):
        monkeypatch.setenv("OTHER_SERVER", str(number))
        described()
    before = list(fork_server_process._servers), open_descriptors()
    monkeypatch.setattr("sys.executable", str(tmp_path / "missing"))
    with pytest.raises(WorkerStartFailed):
        described()
    assert (list(fork_server_process._servers), open_descriptors()) == before

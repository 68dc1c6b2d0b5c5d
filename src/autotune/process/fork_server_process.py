"""The host's handles of the processes that keepers are forked from."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from autotune.process.fork_server import ROOM_VARIABLE

__all__ = [
    "THREAD_VARIABLES",
    "fork_keeper",
    "guard_folder",
    "import_early",
    "release_folder",
    "worker_environment",
]

_SCRIPT = str(Path(__file__).with_name("fork_server.py"))
# The longest path that the kernel takes.
_ROOM = "-" * 4096
_MOST_SERVERS = 3
# Imports of this package take less, also on a machine that is busy.
_PATIENCE_SECONDS = 5.0

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

_OF_OPENMP = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")

# What is read neither by Python nor by a library that a server loads.
_OF_A_WORKER = frozenset({*THREAD_VARIABLES, *_OF_OPENMP, "TMPDIR", "PYTEST_CURRENT_TEST"})
# Modules of this package read its variables when they need them, never on import.
_OWN_PREFIX = "AUTOTUNE_"
_OWN_PACKAGE = "autotune"

_Key = tuple[int, int, str, tuple[tuple[str, str], ...]]


class _ForkServer:
    """A process that forks keepers; see :mod:`autotune.process.fork_server`.

    It ends with the thread that created it, by the kernel's doing.

    Args:
        environment: What it is started with.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one_thread = dict.fromkeys(THREAD_VARIABLES, "1")
        with theirs, ExitStack() as on_failure:
            on_failure.callback(self._control.close)
            self._process = subprocess.Popen(
                [sys.executable, _SCRIPT, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**environment, **one_thread, ROOM_VARIABLE: _ROOM},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
            on_failure.pop_all()

    @property
    def runs(self) -> bool:
        """True if it has not ended; reaps it where it has."""
        return self._process.poll() is None

    def send(self, descriptors: Sequence[int]) -> None:
        """Have a keeper forked; see :func:`fork_keeper`."""
        socket.send_fds(self._control, [b"."], descriptors)

    def leave(self) -> None:
        """Let it do what it was asked for, wait until it has ended, and reap it."""
        with suppress(OSError):  # it may have ended
            self._control.send(b".")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE_SECONDS)
        self.end()

    def end(self) -> None:
        """End it at once."""
        self._control.close()
        self._process.kill()
        self._process.wait()


_servers: dict[_Key, _ForkServer] = {}
_lock = threading.Lock()
# With the processes that they are of.
_guarded: set[tuple[int, str]] = set()


def fork_keeper(
    module: str,
    arguments: Sequence[str],
    imported: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    descriptors: Sequence[int],
) -> None:
    """Have a keeper forked, with a worker that runs a module's ``main``; returns at once.

    Servers stay for the next worker until the process or the calling thread ends.

    Args:
        module: The worker's module.
        arguments: The worker's arguments.
        imported: What the worker is going to import: modules, or parts as ``module:name`` with the
            ``worker_modules`` that these name. What is not of this package is ignored.
        environment: That of the worker.
        folder: The worker's folder.
        descriptors: Those of the keeper's status, of its output, and what the worker inherits:
            what it receives from, and what it sends to.

    Raises:
        OSError: no process can be started.
    """
    request = {
        "module": module,
        "arguments": list(arguments),
        "imported": _own([module, *imported]),
        "environment": dict(environment),
        "folder": str(folder),
        "cpus": sorted(os.sched_getaffinity(0)),
    }
    with _written(request) as file:
        current = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _send(environment, [file, current, *descriptors])
        finally:
            os.close(current)


def import_early(imported: Sequence[str], environment: Mapping[str, str]) -> None:
    """Have imported what workers are going to need; returns at once.

    Args:
        imported: As of :func:`fork_keeper`, like the other argument.
        environment: That of the workers.

    Raises:
        OSError: no process can be started.
    """
    with _written({"imported": _own(imported)}) as file:
        _send(environment, [file])


def guard_folder(folder: Path) -> None:
    """Have a folder removed when this process dies; called before it is made.

    Args:
        folder: A private folder, which need not exist.

    Raises:
        OSError: no process can be started.
    """
    _guarded.add((os.getpid(), str(folder)))
    import_early((), worker_environment(1, {}))


def release_folder(folder: Path) -> None:
    """Forget a guarded folder, which has been removed."""
    _guarded.discard((os.getpid(), str(folder)))


def _own(names: Sequence[str]) -> list[str]:
    return [it for it in names if it.partition(".")[0] == _OWN_PACKAGE]


@contextmanager
def _written(request: Mapping[str, Any]) -> Iterator[int]:
    """The descriptor of a file with a request, which names all folders that are guarded."""
    guarded = sorted(folder for pid, folder in list(_guarded) if pid == os.getpid())
    file = os.memfd_create("worker-request")
    with open(file, "wb") as writer:
        writer.write(json.dumps({**request, "guarded": guarded}).encode())
        writer.flush()
        yield file


def worker_environment(
    threads: int, additions: Mapping[str, str], folder: Path | None = None
) -> dict[str, str]:
    """The environment of a worker: the host's, thread caps, then ``additions``.

    The host's import path is passed on, so that a worker finds what the host found.
    """
    environment = dict(os.environ)
    environment.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    environment["PYTHONFAULTHANDLER"] = "1"
    if folder is not None:
        environment["TMPDIR"] = str(folder)
    environment.update(additions)
    return environment


def _send(environment: Mapping[str, str], descriptors: Sequence[int]) -> None:
    common = {
        name: text
        for name, text in environment.items()
        if name not in _OF_A_WORKER and not name.startswith(_OWN_PREFIX)
    }
    key = os.getpid(), threading.get_native_id(), sys.executable, tuple(sorted(common.items()))
    with _lock:
        _reap()
        # It may end at any moment: nothing of it but this is lost.
        with suppress(OSError, KeyError):
            _servers[key].send(descriptors)
            # The one that was used last is the last to go.
            _servers[key] = _servers.pop(key)
            return
        # A process whose environment names a worker's folder would be taken for a part of it.
        server = _ForkServer(common)
        if key in _servers:
            _servers.pop(key).end()
        _servers[key] = server
        server.send(descriptors)
        _let_some_go()


def _own_keys() -> list[_Key]:
    return [key for key in _servers if key[0] == os.getpid()]


def _reap() -> None:
    """Forget the servers that have ended, such as those of threads that are no more."""
    for key in _own_keys():
        if not _servers[key].runs:
            _servers.pop(key).end()


def _let_some_go() -> None:
    """Let those go that were used longest ago, if there are too many."""
    for key in _own_keys()[:-_MOST_SERVERS]:
        _servers.pop(key).leave()


@atexit.register
def _end_all() -> None:
    """End every server of this process, unless there is something that they are to remove."""
    if any(pid == os.getpid() for pid, _ in _guarded):
        return
    own = [_servers[key] for key in _own_keys()]
    _servers.clear()
    for server in own:
        server.end()

"""Forks keepers from a process that has imported already what their workers need.

Run as a script by ``fork_keeper``. It has one thread and runs nothing but imports of this package:
a copy of it is as good as a new interpreter, and costs a fraction of one. The kernel makes each
keeper a child of the host, as if that had started it: it ends with the host, and this may go.

Arguments: the descriptor of the socket that requests come by, and the host's process id. A request
is a message with descriptors: of a file that holds it in JSON, of the current folder, of the
keeper's status, of its output, and of what only the worker has. One with the first alone is for
imports, and forks nothing; a message without descriptors lets this go. Each request names all
private folders of the host: when that dies, whatever it was about, this removes them before it
ends, or a keeper does. Where something has started threads, of which a copy would lack all but
one, each keeper is a new interpreter instead, which runs this script with ``alone``, the host's
process id and the descriptors.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["ROOM_VARIABLE", "main"]

ROOM_VARIABLE = "AUTOTUNE_FORK_SERVER_ROOM"
"""Its value makes room in what ``/proc`` shows as the environment; see ``_show_folder``."""

_PR_SET_PDEATHSIG = 1
_CLONE_PARENT = 0x8000
# Numbers of the system call, by machine.
_CLONE = {"x86_64": 56, "aarch64": 220}
_MOST_DESCRIPTORS = 16
# Fields of /proc/PID/stat behind the name.
_ENVIRONMENT_BEGINS, _ENVIRONMENT_ENDS = 47, 48


def main() -> None:
    """Serve the host until it lets this go or dies; in a worker, returns when that is done."""
    here = os.path.dirname(os.path.abspath(__file__))
    # Where a script lies is searched first, and names here may be those of other modules.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    # What is imported stays. `connect` has garbage looked for again.
    gc.disable()
    if sys.argv[1] == "alone":
        descriptors = [int(word) for word in sys.argv[3:]]
        _keep(_read(descriptors[0]), int(sys.argv[2]), descriptors)
        return
    host = int(sys.argv[2])
    death = _hear_of_death()
    control = socket.socket(fileno=int(sys.argv[1]))
    guarded: list[str] = []
    # It may have died before the kernel was asked to tell.
    while os.getppid() == host and not _is_told(death, control):
        text, descriptors = _next(control)
        if not text:
            break
        if not descriptors:
            return
        request = _read(descriptors[0])
        guarded = request["guarded"]
        for name in request["imported"]:
            _import(name)
        if len(descriptors) == 1:
            os.close(descriptors[0])
            continue
        has_threads = len(os.listdir("/proc/self/task")) > 1
        try:
            is_copy = _fork_beside() == 0
        except OSError as error:
            is_copy = False
            _tell(descriptors[2], f"refused {error.strerror}")
        if is_copy:
            _forget_death(death)
            control.close()
            if has_threads:
                _start_alone(request, host, descriptors)
            _keep(request, host, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
    _remove_folders(host, _last_guarded(control, guarded))


def _hear_of_death() -> int:
    """The end of a pipe that is written to when the thread ends that started this."""
    hears, tells = os.pipe()
    os.set_blocking(tells, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(tells)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return hears


def _forget_death(hears: int) -> None:
    """Undo in a copy what ``_hear_of_death`` has done; it is not told by the kernel."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.close(signal.set_wakeup_fd(-1))
    os.close(hears)


def _is_told(death: int, control: socket.socket) -> bool:
    """Wait for a request or the end of the host; returns whether it is known to end."""
    waiting = select.poll()
    for descriptor in (death, control.fileno()):
        waiting.register(descriptor, select.POLLIN)
    return death in dict(waiting.poll())


def _last_guarded(control: socket.socket, guarded: list[str]) -> list[str]:
    """The folders that the host named last, be it in a request that comes too late."""
    control.setblocking(False)
    with control, contextlib.suppress(OSError):  # there is no more
        while descriptors := _next(control)[1]:
            guarded = _read(descriptors[0])["guarded"]
            for descriptor in descriptors:
                os.close(descriptor)
    return guarded


def _remove_folders(host: int, folders: Sequence[str]) -> None:
    from autotune.process.keeper import SIGN_SECONDS, remove_folder_of

    for folder in folders:
        remove_folder_of(host, folder, SIGN_SECONDS)


def _tell(status: int, line: str) -> None:
    with contextlib.suppress(OSError):  # there may be no reader left
        os.write(status, f"{line}\n".encode())


def _next(control: socket.socket) -> tuple[bytes, list[int]]:
    """The next message and its descriptors; an empty one if the host has closed its end."""
    return socket.recv_fds(control, 1, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)[:2]


def _read(descriptor: int) -> Any:
    return json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))


def _import(name: str) -> None:
    """Import a module, or a part ``module:name`` with the ``worker_modules`` that it names."""
    module, _, part = name.partition(":")
    with contextlib.suppress(Exception):  # the worker imports it again, and says what is wrong
        found = importlib.import_module(module)
        for needed in getattr(getattr(found, part, None), "worker_modules", ()):
            importlib.import_module(needed)


def _fork_beside() -> int:
    """Fork as ``os.fork``, but as a child of this process's parent.

    Python and the C library are not told: they keep nothing for a process of one thread that a
    copy of it could not use.
    """
    # It holds the interpreter's lock, which the copy then has.
    found: int = ctypes.PyDLL(None, use_errno=True).syscall(
        ctypes.c_long(_CLONE[os.uname().machine]),
        ctypes.c_long(_CLONE_PARENT | signal.SIGCHLD),
        *[ctypes.c_long(0)] * 4,
    )
    if found < 0:
        raise OSError(ctypes.get_errno(), "no process can be forked")
    return found


def _start_alone(request: Any, host: int, descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    command = [sys.executable, os.path.abspath(__file__), "alone", str(host)]
    command += map(str, descriptors)
    room = {ROOM_VARIABLE: os.environ[ROOM_VARIABLE]}
    os.execve(sys.executable, command, request["environment"] | room)


def _keep(request: Any, host: int, descriptors: Sequence[int]) -> None:
    """Become a keeper and its worker; in the worker, returns when that is done."""
    from autotune.process.keeper import become_keeper

    file, current, status, output, *own = descriptors
    _tell(status, f"keeper {os.getpid()}")
    os.setsid()
    with contextlib.suppress(OSError):
        os.fchdir(current)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, request["cpus"])
    for number in (1, 2):
        os.dup2(output, number)
    for descriptor in (file, current, output):
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    _show_folder(request["folder"])
    become_keeper(status, host, request["folder"], own)
    _use_blas_threads()
    receive, send = map(str, own)
    ends = ["--receive", receive, "--send", send]
    sys.argv = [request["module"], *request["arguments"], *ends]
    importlib.import_module(request["module"]).main()


def _show_folder(folder: str) -> None:
    """Have ``/proc`` show a worker's folder as its environment, by which others find it.

    It shows what the process was started with, which has been replaced and is read by nobody.
    """
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    begin, end = int(fields[_ENVIRONMENT_BEGINS]), int(fields[_ENVIRONMENT_ENDS])
    text = b"TMPDIR=" + os.fsencode(folder)
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, text, min(len(text), end - begin - 1))


def _use_blas_threads() -> None:
    """Let numpy's library, which was loaded for one thread, use those that the worker may."""
    if "numpy" in sys.modules and (threads := int(os.environ["OPENBLAS_NUM_THREADS"])) > 1:
        from autotune.process.blas_threads import use_blas_threads

        use_blas_threads(threads)


if __name__ == "__main__":
    main()

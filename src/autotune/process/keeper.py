"""Stands between a host and its worker, and outlives both just long enough to clean up.

A process that a fork server has just forked becomes one. It forks: the child becomes the worker,
and the parent, the keeper, does nothing but wait. All that the worker starts, also what makes a
session of its own or forks twice, is a descendant of the keeper, which the kernel makes its child
when it is orphaned. When the worker ends, or a signal asks the keeper to end (which the kernel
also sends when the host dies), the keeper kills every descendant, waits until there is none, and
removes the worker's folder. Where the host is dying, too, it waits for its end and removes the
host's folder.

The status is lines: ``keeper PID``, told before; ``worker PID``; ``told PID`` if a process other
than the host told the keeper to end; and last ``gone CODE`` with the worker's exit code (minus the
signal's number if one killed it), or just ``gone`` if the keeper had to kill it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Sequence

__all__ = ["SIGN_SECONDS", "become_keeper", "remove_folder_of"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ORDERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# Less than a host waits for its keeper. Only processes stuck in the kernel take that long.
_PATIENCE_SECONDS = 4.0
_POLL_SECONDS = 0.01
# How long a dying host may take to close its files: it may have much memory to give back.
_HOST_SECONDS = 30.0
_HOST_POLL_SECONDS = 0.05
_PF_EXITING = 0x4

SIGN_SECONDS = 0.5
"""After the thread that started a keeper has ended: a host without a sign of dying lives."""


def become_keeper(status: int, host: int, folder: str, descriptors: Sequence[int]) -> None:
    """Become a keeper and its worker; returns in the worker only.

    Args:
        status: The descriptor that the status is written to.
        host: Process id of the host, whose child this is.
        folder: The worker's folder.
        descriptors: What only the worker needs.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    # A host may ignore this signal, which is inherited and would hide the end of children.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _control(_PR_SET_CHILD_SUBREAPER, 1)
    _control(_PR_SET_PDEATHSIG, signal.SIGTERM)
    keeper = os.getpid()
    if os.getppid() != host:  # it died before the lines above
        _remove_folder(folder)
        remove_folder_of(host, os.path.dirname(folder))
        os._exit(0)
    worker = os.fork()
    if worker == 0:
        _become_worker(keeper, status)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return
    for descriptor in descriptors:
        os.close(descriptor)
    sender = _wait(worker)
    if sender not in (None, host):
        _tell(status, f"told {sender}")
    code = _end(worker)
    _remove_folder(folder)
    _tell(status, "gone" if code is None else f"gone {code}")
    # The kernel gives its order as process 0.
    remove_folder_of(host, os.path.dirname(folder), SIGN_SECONDS if sender == 0 else 0.0)
    os._exit(0)


def _control(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _tell(status: int, line: str) -> None:
    with contextlib.suppress(OSError):  # there may be no reader left
        os.write(status, f"{line}\n".encode())


def _become_worker(keeper: int, status: int) -> None:
    """Lead a session, die with the keeper, and tell the host who this is."""
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(0)
    os.setsid()
    # Told from here: the host knows before the first message.
    _tell(status, f"worker {os.getpid()}")
    os.close(status)


def _wait(worker: int) -> int | None:
    """Reap orphans until the worker has ended, which is left to be reaped, or an order comes.

    Returns who gave the order, if there was one.
    """
    while True:
        info = signal.sigwaitinfo({signal.SIGCHLD, *_ORDERS})
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == worker:
                return None
            os.waitpid(ended.si_pid, 0)
        if info.si_signo in _ORDERS:
            return info.si_pid


def _end(worker: int) -> int | None:
    """Kill and reap every descendant; returns the worker's exit code if it ended by itself."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    by_itself = os.waitid(os.P_PID, worker, options) is not None
    # In nearly all cases these are all. The worker's number is still its own.
    for kill in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError):
            kill(worker, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    end = time.monotonic() + _PATIENCE_SECONDS
    while _has_children() and time.monotonic() < end:
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, _POLL_SECONDS)
    return code if by_itself else None


def _has_children() -> bool:
    """Return whether any child lives, once those that have ended are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _descendants(ancestor: int) -> list[int]:
    """Processes below ``ancestor``, without those that have ended."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
                # "pid (name) state parent ...", where the name may contain anything
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state not in b"ZX":
                    children.setdefault(int(parent), []).append(int(entry))
    found: list[int] = []
    generation = [ancestor]
    while generation:
        generation = [pid for parent in generation for pid in children.get(parent, ())]
        found += generation
    return found


def _remove_folder(folder: str) -> None:
    """Remove the worker's folder."""
    # What is imported here would only delay the worker's start, and is seldom needed.
    try:
        os.rmdir(folder)
    except OSError:  # not empty
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def remove_folder_of(host: int, folder: str, seconds: float = 0.0) -> None:
    """Remove the folder of a host that is dying or dead; whoever finds it held by none does.

    The kernel gives its order when one thread of the host ends. Others may go on for a while, and
    hold its lock even when it is nobody's parent any more.

    Args:
        host: Process id of the host.
        folder: Its folder.
        seconds: How long a living host is watched for signs of dying.
    """
    now = time.monotonic()
    end, watched = now + _HOST_SECONDS, now + seconds
    while now < end and os.path.isdir(folder):
        if os.getppid() != host:
            from pathlib import Path

            from autotune.process.stale_folders import remove_if_abandoned

            remove_if_abandoned(Path(folder))
        elif _is_ending(host):
            watched = now + SIGN_SECONDS
        elif now >= watched:
            return
        time.sleep(_HOST_POLL_SECONDS)
        now = time.monotonic()


def _is_ending(pid: int) -> bool:
    """Tell if a process shows a sign of dying: a thread that ends or is about to be killed."""
    kill = 1 << (signal.SIGKILL - 1)
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            path = f"/proc/{pid}/task/{thread}"
            with contextlib.suppress(OSError), open(f"{path}/stat", "rb") as file:
                # "pid (name) state parent group session terminal group flags ..."
                if int(file.read().rpartition(b")")[2].split()[6]) & _PF_EXITING:
                    return True
            with contextlib.suppress(OSError), open(f"{path}/status", "rb") as file:
                pending = [line.split()[1] for line in file if line[:6] in (b"SigPnd", b"ShdPnd")]
                if any(int(signals, 16) & kill for signals in pending):
                    return True
    return False

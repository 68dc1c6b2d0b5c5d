"""Misbehaving programs, for tests of isolation."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np

from autotune.process.channel import encode

__all__ = ["HANGING", "MISCONDUCT"]

HANGING = "hanging"
"""File in the temporary directory of a process that hangs, with its process id."""

_HOST_FOLDER = "autotune-"
_BLOCK_BYTES = 1 << 20
_MOST_BLOCKS = 64


def _crash() -> None:
    os.write(2, b"scripted: last words\n")
    os.kill(os.getpid(), signal.SIGSEGV)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _exit() -> NoReturn:
    os._exit(3)


def _hang() -> NoReturn:
    # Those who wait for this moment find out here.
    with open(os.path.join(tempfile.gettempdir(), HANGING), "w") as file:
        file.write(f"{os.getpid()}\n")
    _sleep()


def _sleep() -> NoReturn:
    while True:
        time.sleep(60)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _grandchild() -> NoReturn:
    # The grandchild keeps every pipe of the worker open and has no reason to end.
    if os.fork() == 0:
        os.setpgid(0, 0)
    _sleep()


def _daemon() -> NoReturn:
    # It has left the worker's session and has no parent.
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            _sleep()
        os._exit(0)
    os.waitpid(child, 0)
    _sleep()


def _garbage() -> None:
    _write_to_pipes(b"\xff\xfe garbage " * 8)


def _silence() -> NoReturn:
    _write_to_pipes(encode({"done": {"text": "the rest never comes"}})[:20])
    _sleep()


def _write_to_pipes(data: bytes) -> None:
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if descriptor > 2 and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.write(descriptor, data)
        except OSError:  # the listing's own descriptor, or a pipe's reading end
            continue


def _memory() -> None:
    kept = []
    while True:
        kept.append(np.ones(1 << 24))


def _disk() -> NoReturn:
    # Only on a small one.
    with open(os.path.join(tempfile.gettempdir(), "filling"), "wb", buffering=0) as file:
        for _ in range(_MOST_BLOCKS):
            file.write(bytes(_BLOCK_BYTES))
            os.fsync(file.fileno())
    raise RuntimeError("scripted: this disk is too large to be filled")


def _chatter() -> None:
    for _ in range(64):
        os.write(1, b"chatter " * (1 << 13))


def _folder() -> None:
    # Not what tempfile says: once the folder is gone that is /tmp, below the root of it all.
    folder = os.path.dirname(os.environ.get("TMPDIR", ""))
    if not os.path.basename(folder).startswith(_HOST_FOLDER):
        raise RuntimeError(f"scripted: {folder!r} is no folder of a host, and stays")
    shutil.rmtree(folder, ignore_errors=True)


def _files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


MISCONDUCT: Mapping[str, Callable[[], None]] = {
    "crash": _crash,
    "kill": _kill,
    "exit": _exit,
    "hang": _hang,
    "stop": _stop,
    "grandchild": _grandchild,
    "daemon": _daemon,
    "garbage": _garbage,
    "silence": _silence,
    "memory": _memory,
    "disk": _disk,
    "chatter": _chatter,
    "folder": _folder,
    "files": _files,
    "environment": os.environ.clear,
}
"""What goes wrong, by name."""

"""A worker of nothing but the standard library, so that hundreds of them can be started.

``--plan`` is a JSON object: ``say``, bytes in hexadecimal to send at once; ``beget``, names of
functions below that make further processes; ``then``, the name of what it does last. It waits for
a message in between, if there is a ``wait``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable

_arguments = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
RECEIVE, SEND = int(_arguments["--receive"]), int(_arguments["--send"])


def hang() -> None:
    while True:
        time.sleep(60)


def close() -> None:
    """Live on, but close the pipe."""
    os.close(SEND)
    hang()


def leave() -> None:
    os._exit(3)


def raise_error() -> None:
    raise RuntimeError("scripted: an error")


def crash_deep_down(calls: int = 60) -> None:
    """Say something, then crash with more calls to report than are kept."""
    if calls == 60:
        os.write(2, b"scripted: last words\n")
    if calls == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    crash_deep_down(calls - 1)


def sends(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def child() -> None:
    """In the same session."""
    if os.fork() == 0:
        hang()


def group() -> None:
    """A child in a group of its own."""
    if os.fork() == 0:
        os.setpgid(0, 0)
        hang()


def daemon() -> None:
    """Forked twice, in a session of its own, deaf to every signal that can be ignored."""
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            hang()
        os._exit(0)
    os.waitpid(first, 0)


def nameless() -> None:
    """A daemon that has dropped its environment, known by how long it sleeps."""
    seconds = 600 + os.getpid()
    if os.fork() == 0:
        os.setsid()
        os.execve("/bin/sleep", ["sleep", str(seconds)], {})


def stopped() -> None:
    """A daemon that is stopped."""
    if os.fork() == 0:
        os.setsid()
        os.kill(os.getpid(), signal.SIGSTOP)
        hang()


def begetter() -> None:
    """A daemon that goes on forking, each copy in a session of its own."""
    if os.fork() == 0:
        for _ in range(40):
            if os.fork() == 0:
                os.setsid()
                hang()
            time.sleep(0.002)
        hang()


ACTS: dict[str, Callable[[], None]] = {
    "hang": hang,
    "close": close,
    "leave": leave,
    "raise": raise_error,
    "kill": sends(signal.SIGKILL),
    "terminate": sends(signal.SIGTERM),
    "crash": sends(signal.SIGSEGV),
    "crash-deep": crash_deep_down,
    "stop": sends(signal.SIGSTOP),
    "child": child,
    "group": group,
    "daemon": daemon,
    "nameless": nameless,
    "stopped": stopped,
    "begetter": begetter,
}


def main() -> None:
    plan = json.loads(_arguments["--plan"])
    for name in plan.get("beget", ()):
        ACTS[name]()
    data = bytes.fromhex(plan.get("say", ""))
    while data:
        data = data[os.write(SEND, data) :]
    if "wait" in plan:
        os.read(RECEIVE, 1)
    with open(os.path.join(os.environ["TMPDIR"], "left"), "w") as file:
        file.write("temporary")
    ACTS[plan["then"]]()

"""Watches which plugin a host has called; run as a script by ``CallWatch``, with no imports of it.

The host writes the call that is under way into memory that both share, and nothing else: calls
cost no switch to another process. This process looks at it once in a while. A call that takes too
long is named and interrupted, as Ctrl-C would; where that does not help, the host is killed, as
nothing else ends an endless loop in native code. A host that ends inside a call, by ``os._exit``
or a crash, reports nothing itself: its call is named here.

Arguments: descriptor of the memory, descriptor of a pipe that the host holds open, process id of
the host, seconds that a call may take, and seconds until an interrupted one is killed.

The memory: the number of the outermost call (0: it has no deadline) and the length of its
description, four bytes each, then the description.
"""

import contextlib
import os
import select
import signal
import sys
import time

_MOST_BYTES = 1 << 12
_POLL_SECONDS = 1.0


def main() -> None:
    """Watch until the host has ended, or ends this process."""
    memory, pipe, host = map(int, sys.argv[1:4])
    seconds, grace = map(float, sys.argv[4:])
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    number, since, interrupted = 0, 0.0, False
    while not poll.poll(min(_POLL_SECONDS, seconds / 4) * 1000) and os.getppid() == host:
        found, call = _read(memory)
        now = time.monotonic()
        if found != number or not found:
            number, since, interrupted = found, now, False
        elif not interrupted and now - since > seconds:
            interrupted = True
            _say(f"{call} took more than {seconds:g} s: it is interrupted")
            os.kill(host, signal.SIGINT)
        elif interrupted and now - since > seconds + grace:
            _say(f"{call} does not stop: the process is killed; the same call resumes the run")
            os.kill(host, signal.SIGKILL)
            return
    _, call = _read(memory)
    if call:
        _say(f"the process ended in a call: {call}; the same call resumes the run")


def _read(memory: int) -> "tuple[int, str]":
    """The number of the call under way and its description, "" where there is none."""
    data = os.pread(memory, _MOST_BYTES, 0)
    number, length = (int.from_bytes(data[at : at + 4], "little") for at in (0, 4))
    return number, data[8 : 8 + length].decode("utf-8", "replace")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody may read it
        os.write(2, f"autotune: error: {text}\n".encode())


if __name__ == "__main__":
    main()

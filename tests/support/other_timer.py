"""Another process that times on the same processors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLDER = """
import sys, time
from pathlib import Path
from autotune.process.timing_lock import TimingLock

lock = TimingLock(tuple(map(int, sys.argv[2].split(","))), path=Path(sys.argv[1]))
print("started", flush=True)
for line in sys.stdin:
    if line.strip() == "release":
        lock.release()
        print("released", flush=True)
    elif line.strip() == "wait":
        held = lock.acquire()
        print("asked", flush=True)
        while not held:
            time.sleep(0.01)
            held = lock.acquire()
        print(held, flush=True)
    else:
        print(lock.acquire(), flush=True)
"""


class Other:
    """Another process with a lock."""

    def __init__(self, path: Path, processors: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(path), processors],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "started"

    def wait(self) -> None:
        """Have it ask until it gets the lock; it has asked once when this returns."""
        self._write("wait")
        assert self._line() == "asked"

    def has_waited(self) -> bool:
        """Tell whether it got the lock that it waited for, in the end."""
        return self._line() == "True"

    def acquires(self) -> bool:
        """Tell whether it gets the lock now."""
        self._write("ask")
        return self._line() == "True"

    def release(self) -> None:
        """Have it let others time."""
        self._write("release")
        assert self._line() == "released"

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def other_process(path: Path, processors: str) -> Iterator[Other]:
    """A process that asks for the lock in a file when it is told to; killed at the end."""
    other = Other(path, processors)
    try:
        yield other
    finally:
        other.process.kill()
        other.process.communicate()

"""Another process that times on the same processors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Other", "other_process"]

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
    else:
        end = time.monotonic() + float(line)
        while not (held := lock.acquire()) and time.monotonic() < end:
            time.sleep(0.01)
        print(held, flush=True)
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

    def ask(self, seconds: float = 0.0) -> None:
        """Have it ask for so long."""
        self._write(str(seconds))

    def answer(self) -> bool:
        """Whether it got the lock."""
        return self._line() == "True"

    def acquires(self) -> bool:
        """Whether it gets the lock now."""
        self.ask()
        return self.answer()

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

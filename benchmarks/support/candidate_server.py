"""The host's side of `serve_candidates.py`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from autotune.sketches import Candidate
from autotune.targets import Target
from support.common import SUPPORT, environment


class CandidateServer:
    """A process that times candidates when asked.

    Args:
        candidates: What it is asked about, by position.
        target: What they are built for.
        threads: Threads that they use.
        cpus: Where it runs.
        build: Whether to build them all at once; otherwise it can only build.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        target: Target,
        threads: int,
        cpus: Sequence[int],
        *,
        build: bool = True,
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SUPPORT / "serve_candidates.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        sketches = {candidate.sketch.digest: candidate.sketch for candidate in candidates}
        self.send(
            {
                "workload": candidates[0].sketch.workload.to_json(),
                "target": target.to_json(),
                "threads": threads,
                "cpus": list(cpus),
                "sketches": {digest: sketch.to_json() for digest, sketch in sketches.items()},
                "candidates": [[it.sketch.digest, it.config] for it in candidates],
                "build": build,
            }
        )
        self.ready: list[int] = self.receive()["ready"]

    def __enter__(self) -> CandidateServer:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def send(self, asked: dict[str, Any]) -> None:
        """Ask for something."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the process that times candidates has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, what: str, candidate: int) -> dict[str, Any]:
        """Its answer about a candidate."""
        self.send({"do": what, "candidate": candidate})
        return self.receive()

    @contextlib.contextmanager
    def building(self) -> Iterator[list[int]]:
        """Build inside; afterwards the list says how many were built."""
        built: list[int] = []
        self.send({"do": "build on"})
        try:
            yield built
        finally:
            self.send({"do": "rest"})
            built.append(self.receive()["built"])
            self.receive()

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

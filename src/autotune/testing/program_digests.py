"""Digests of a backend's programs, found in this process or in another one."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Sequence

from autotune.backends import Backend, BuildRequest
from autotune.ir.workloads import Workload
from autotune.process.worker_process import worker_environment
from autotune.sketches import Candidate
from autotune.targets import Target

__all__ = ["program_digests", "program_digests_elsewhere"]


def program_digests(backend: Backend, request: BuildRequest) -> tuple[str, str]:
    """Digests of the lowered and of the compiled program."""
    lowered = backend.lower(request)
    return lowered.digest, backend.compile(lowered).digest


def program_digests_elsewhere(
    backend: Backend, requests: Sequence[BuildRequest]
) -> list[tuple[str, str]]:
    """The same in a process of its own.

    Args:
        backend: Of a class that needs no arguments.
        requests: What to build, which may differ in their candidates only.
    """
    threads = requests[0].threads
    sent = [
        f"{type(backend).__module__}:{type(backend).__qualname__}",
        [requests[0].workload.to_json(), requests[0].target.to_json()],
        [requests[0].program, threads],
        [request.candidate and request.candidate.to_json() for request in requests],
    ]
    process = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import main; main()"],
        input=json.dumps(sent),
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
        env=worker_environment(threads, backend.worker_environment(threads)),
    )
    return [(lowered, compiled) for lowered, compiled in json.loads(process.stdout)]


def main() -> None:
    """Write the digests of programs; what :func:`program_digests_elsewhere` runs.

    Standard input has, in JSON, the backend's import string, the workload and the target, the
    imported program and the number of threads, and the candidates.
    """
    name, (about, described), (program, threads), candidates = json.load(sys.stdin)
    module, _, attribute = name.partition(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)()
    workload, target = Workload.from_json(about), Target.from_json(described)
    found = []
    for data in candidates:
        candidate = None if data is None else Candidate.from_json(data, workload)
        request = BuildRequest(workload, program, candidate, target, threads)
        found.append(program_digests(backend, request))
    sys.stdout.write(json.dumps(found))

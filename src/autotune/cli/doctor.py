"""``autotune doctor``."""

from __future__ import annotations

import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

import attrs
from attrs import frozen

from autotune.cli.app import NOTHING_FOUND, OK
from autotune.cli.arguments import Nothing, command_of
from autotune.cli.output import Output
from autotune.errors import AutotuneError, one_line
from autotune.plugins.guarded_parts import create_held_part
from autotune.plugins.manager import manager
from autotune.process import THREAD_VARIABLES
from autotune.report import Finding, findings_table, formats
from autotune.targets import Target, detect_cpu, measure_core_rates, repeat_times
from autotune.tuning.options import usable_cpus
from autotune.tuning.programs import compiling_backends

__all__ = ["Diagnosis", "command", "dependency_findings", "diagnose"]

EPILOG = """\b
Example:
  autotune doctor --json -
"""

CORE = "tensor-autotune"
LOW_DISK = 1 << 30
STABLE_SPREAD = 0.05
"""Timing is called stable when nine of ten repetitions are within this share of the median."""


@frozen
class Diagnosis:
    """Everything that was found.

    Attributes:
        findings: In the order in which they were looked at.
        target: The target as detected; None where it cannot be.
    """

    findings: tuple[Finding, ...]
    target: Target | None

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "findings": [attrs.asdict(finding) for finding in self.findings],
            "target": None if self.target is None else self.target.to_json(),
        }


def diagnose() -> Diagnosis:
    """Look at everything; what fails to be looked at is a finding too."""
    target, target_findings = _target()
    checks: tuple[tuple[str, Callable[[], Iterable[Finding]]], ...] = (
        ("system", _system),
        ("versions", _versions),
        ("plugins", _plugins),
        ("backends", _backends),
        ("observers", _observers),
        ("target", lambda: target_findings),
        ("threads", lambda: _threads(target)),
        ("compiler", _compiler),
        ("disk", _disk),
        ("timing", _timing),
        ("peak", lambda: _peak(target)),
    )
    findings: list[Finding] = []
    for label, check in checks:
        try:
            findings += check()
        except Exception as error:  # a diagnosis continues after any error
            findings.append(Finding(label, "error", f"{type(error).__name__}: {error}"))
    return Diagnosis(tuple(findings), target)


def _system() -> Iterator[Finding]:
    supported = platform.system() == "Linux" and platform.machine() == "x86_64"
    text = f"{platform.system()} on {platform.machine()}, Python {platform.python_version()}"
    if not supported:
        text += "; only Linux on x86-64 is supported"
    yield Finding("system", "ok" if supported else "error", f"{text} at {sys.executable}")


def _versions() -> Iterator[Finding]:
    plugins = {status.distribution for status in manager().report() if status.distribution}
    yield from dependency_findings((CORE, *sorted(plugins - {CORE})))


def _plugins() -> Iterator[Finding]:
    for status in manager().report():
        if status.status != "ok":
            level = "error" if status.status == "quarantined" else "warning"
            yield Finding(f"plugin {status.name}", level, f"{status.status}: {status.error}")


def _backends() -> Iterator[Finding]:
    for name in compiling_backends():
        try:
            backend = create_held_part("backend", name)
            yield Finding(f"backend {name}", "ok", str(backend.compiler_version()))
            for label, status, message in backend.diagnose():
                yield Finding(f"{name}: {label}", status, message)
        except AutotuneError as error:
            yield Finding(f"backend {name}", "error", str(error))


def _observers() -> Iterator[Finding]:
    # Nothing is wrong with a machine that lacks counters: it can only tell less.
    for name in manager().names("observer"):
        try:
            found = create_held_part("observer", name).check()
        except AutotuneError as error:
            yield Finding(f"observer {name}", "error", str(error))
            continue
        parts = [f"reads {', '.join(found.reads)}"] if found.reads else []
        if found.absent:
            parts.append(f"absent: {', '.join(found.absent)} ({found.reason})")
        yield Finding(f"observer {name}", "ok", "; ".join(parts))


def _target() -> tuple[Target | None, list[Finding]]:
    try:
        target = detect_cpu()
    except AutotuneError as error:
        return None, [Finding("target", "error", str(error))]
    caches = ", ".join(
        f"L{cache.level} {formats.size(cache.size_bytes)}{' shared' if cache.shared else ''}"
        for cache in target.caches
    )
    text = (
        f"{target.processor}, {target.cores} cores, {8 * target.vector_bytes}-bit vectors, "
        f"{target.vector_registers} registers, {caches}"
    )
    return target, [Finding("target", "ok", text)]


def _thread_variables() -> list[str]:
    """Environment variables that numeric libraries and the backends take thread counts from."""
    found = dict.fromkeys(THREAD_VARIABLES)
    for name in manager().names("backend"):
        # A backend that does not work is a finding already.
        with suppress(AutotuneError):
            backend = create_held_part("backend", name)
            one, two = backend.worker_environment(1), backend.worker_environment(2)
            found |= dict.fromkeys(key for key in two if one.get(key) != two[key])
    return list(found)


def _threads(target: Target | None) -> Iterator[Finding]:
    cores = target.cores if target else usable_cpus()
    yield Finding(
        "threads", "ok", f"{usable_cpus()} logical CPUs usable; {cores} threads by default"
    )
    for name in _thread_variables():
        value = os.environ.get(name)
        if value is not None:
            yield Finding(
                name,
                "ok" if value == str(cores) else "warning",
                f"set to {value}; workers are given their own value",
            )
    load = os.getloadavg()[0]
    status = "ok" if load < 0.5 * usable_cpus() else "warning"
    yield Finding(
        "load", status, f"{load:.1f} processes want to run; timings need a quiet machine"
    )


def _compiler() -> Iterator[Finding]:
    path = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if path is None:
        yield Finding("C compiler", "warning", "no cc; needed to export programs, not to tune")
        return
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    yield Finding("C compiler", "ok", f"{path}: {one_line(done.stdout[:90])}")


def _disk() -> Iterator[Finding]:
    for label, folder in (("disk here", os.getcwd()), ("disk temporary", tempfile.gettempdir())):
        free = shutil.disk_usage(folder).free
        status = "ok" if free >= LOW_DISK else "warning"
        yield Finding(label, status, f"{formats.size(free)} free in {folder}")


def _peak(target: Target | None) -> Iterator[Finding]:
    """Peak rates that latencies are held to; see ``autotune.measure.plausibility``."""
    if target is not None:
        flops, bandwidth = measure_core_rates(target.cores)
        text = (
            f"{flops / 1e9:.0f} Gflop/s of float32, {bandwidth / 1e9:.0f} GB/s from the first "
            "cache; not known for types of fewer than 4 bytes"
        )
        yield Finding("peak", "ok", text)


def _timing() -> Iterator[Finding]:
    times = repeat_times(200, 200_000)
    median = statistics.median(times)
    spread = sorted(abs(time - median) for time in times)[int(0.9 * len(times))] / median
    status = "ok" if spread <= STABLE_SPREAD else "warning"
    text = f"nine of ten repetitions within {100 * spread:.1f} % of {formats.seconds(median)}"
    if status != "ok":
        text += "; close other programs, or expect noisy results"
    yield Finding("timing", status, text)


@frozen
class Asked:
    """A package that a distribution asks for.

    Attributes:
        package: Its name, in lower case and with hyphens.
        versions: Which versions of it: ``">=1.24"``.
        by: The distribution, with the extra that it is for in brackets.
        is_extra: Whether it is for an extra.
    """

    package: str
    versions: str
    by: str
    is_extra: bool


_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)\s*(?:\[[^]]*\])?\s*"
    r"\(?(?P<versions>[^;()]*)\)?\s*(?:;(?P<marker>.*))?"
)
_EXTRA = re.compile(r"extra\s*==\s*[\"']([^\"']+)[\"']")
_OLDER_PYTHON = re.compile(r"python_version\s*<\s*[\"'](\d+)\.(\d+)[\"']")


def asked_packages(distribution: str) -> list[Asked]:
    """Packages that a distribution asks for on this version of Python, also for its extras.

    Nothing where it is not installed.
    """
    try:
        requirements = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for requirement in requirements:
        parts = _REQUIREMENT.match(requirement)
        if parts is None:
            continue
        marker = parts["marker"] or ""
        older = _OLDER_PYTHON.search(marker)
        if older and sys.version_info[:2] >= tuple(map(int, older.groups())):
            continue
        extra = _EXTRA.search(marker)
        package = re.sub(r"[-_.]+", "-", parts["name"]).lower()
        by = f"{distribution}[{extra[1]}]" if extra else distribution
        found.append(Asked(package, parts["versions"].strip(), by, extra is not None))
    return found


def dependency_findings(distributions: Sequence[str]) -> Iterator[Finding]:
    """The version of each of these, and then of each package that one of them asks for."""
    askers: dict[str, list[Asked]] = {}
    for name in distributions:
        version = _version(name)
        if version is None:
            yield Finding(name, "warning", "not installed: running from a source tree")
        else:
            yield Finding(name, "ok", version)
        for asked in asked_packages(name):
            askers.setdefault(asked.package, []).append(asked)
    for package in sorted(askers.keys() - set(distributions)):
        yield _dependency(package, askers[package])


def _dependency(package: str, askers: Sequence[Asked]) -> Finding:
    version = _version(package)
    needed = [it for it in askers if not it.is_extra]
    by = ", ".join(f"{it.by} ({it.versions})" if it.versions else it.by for it in askers)
    if version is not None:
        return Finding(package, "ok", f"{version}, for {by}")
    return Finding(package, "warning" if needed else "ok", f"not installed, for {by}")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@command_of("doctor", Nothing, EPILOG)
def command(_: Nothing, output: Output) -> int:
    """Check versions, compiler, target, threads, disk, and whether timing is stable here."""
    diagnosis = diagnose()
    output.json(diagnosis.to_json())
    output.table(findings_table(diagnosis.findings))
    return NOTHING_FOUND if any(f.status == "error" for f in diagnosis.findings) else OK

"""Requirements of installed distributions, by their own metadata."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata

from attrs import frozen

from autotune.report import Finding

__all__ = ["Asked", "asked_packages", "dependency_findings"]


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

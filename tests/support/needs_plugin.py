"""Marks of what tests need: those of other environments are skipped, and those of none are found.

``--has`` states what an environment has, which is then an error to lack. ``--needing`` selects the
tests that need one of some packages, so that two environments do not run the same tests.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from functools import cache
from pathlib import Path

import pytest
from needs import MACHINE, PACKAGES, ROOT, is_here, marks_in_file, named_in_file, needs_of_file
from selections import (
    Facts,
    all_selections,
    calls_of_pytest,
    may_hold,
    names,
    nowhere,
    read_environments,
)

TESTS = pytest.StashKey[list[Facts]]()
"""All tests that were collected, also those that are not selected."""
LEFT_OUT = pytest.StashKey[list[Path]]()
"""Files that are not collected: something is missing, or no test needs what is asked for."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("needs of tests")
    group.addoption("--has", type=names, default=frozenset(), metavar="NAME,NAME")
    group.addoption("--needing", type=names, default=frozenset(), metavar="NAME,NAME")
    group.addoption(
        "--where", type=Path, metavar="TOX_INI", help="say where the collected tests run"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = []
    known = PACKAGES.keys()
    for given in (config.getoption("--has"), config.getoption("--needing")):
        if unknown := given - known:
            raise pytest.UsageError(f"no package that tests need: {', '.join(sorted(unknown))}")
    missing = [need for need in sorted(config.getoption("--has")) if not is_here(need)]
    if missing:
        raise pytest.UsageError(f"--has, but there is no {', '.join(missing)}: tox run -r ...")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files whose imports would fail are left out, and those without a test that is selected."""
    if collection_path.is_dir():
        anchor = collection_path / "conftest.py"
        if not anchor.is_file() or ROOT not in collection_path.parents:
            return None
    elif not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    else:
        anchor = collection_path
    imported = all(map(is_here, needs_of_file(anchor)))
    asked = anchor is not collection_path or _may_be_selected(anchor, config)
    if imported and asked:
        return None
    left = sorted(collection_path.rglob("test_*.py")) if anchor != collection_path else [anchor]
    config.stash[LEFT_OUT] += left
    return True


def _may_be_selected(path: Path, config: pytest.Config) -> bool:
    """False where no test of a file can be selected, which need not be imported then."""
    marks, needing = marks_in_file(path), config.getoption("--needing")
    needed = not needing or needing & named_in_file(path) or "everywhere" in marks
    return bool(needed) and may_hold(config.getoption("-m"), marks)


def facts_of(item: pytest.Item) -> Facts:
    """Needs of a test, by its file and its marks.

    Raises:
        pytest.UsageError: it needs something unknown, or a mark's name is nowhere in its file,
            where those that select by it look for it.
    """
    marked = {name for mark in item.iter_markers("needs") for name in mark.args}
    if unknown := marked - PACKAGES.keys() - MACHINE.keys():
        known = ", ".join(sorted({*PACKAGES, *MACHINE}))
        raise pytest.UsageError(f"{item.nodeid} needs {unknown}, which is none of {known}")
    if unnamed := marked - named_in_file(item.path):
        raise pytest.UsageError(f"{item.nodeid} needs {unnamed}, but its file does not say so")
    marks = frozenset(mark.name for mark in item.iter_markers())
    gpu = {"gpu"} & marks
    return Facts(item.nodeid, needs_of_file(item.path) | marked | gpu, marks)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Skips tests that lack something, and deselects those that need nothing that is asked for."""
    tests = config.stash[TESTS] = [facts_of(item) for item in items]
    needing, kept, dropped = config.getoption("--needing"), [], []
    for item, test in zip(items, tests, strict=True):
        missing = sorted(need for need in test.needs if not is_here(need))
        if missing:
            item.add_marker(pytest.mark.skip(_reason(missing)))  # noqa: TID251
        wanted = not needing or test.needs & needing or "everywhere" in test.marks
        (kept if wanted else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
    yield


def _reason(missing: Sequence[str]) -> str:
    packages = tuple(need for need in missing if need in PACKAGES)
    said = [MACHINE[need][1] for need in missing if need in MACHINE]
    if packages:
        said.append(f"needs {', '.join(packages)}: tox -e {_environments_with(packages)}")
    return "; ".join(said)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    missing = Counter(
        need
        for path in config.stash[LEFT_OUT]
        for need in needs_of_file(path)
        if not is_here(need)
    )
    if missing and not config.getoption("--needing"):
        said = ", ".join(f"{need} ({count})" for need, count in sorted(missing.items()))
        terminalreporter.write_line(f"files left to other environments, by need: {said}")
    tox_ini: Path | None = config.getoption("--where")
    if tox_ini is not None:
        for line in where(config.stash[TESTS], tox_ini):
            terminalreporter.write_line(line)


def where(tests: list[Facts], tox_ini: Path) -> list[str]:
    """Lines that say how many tests each environment runs, and which tests run nowhere."""
    selections = all_selections(tox_ini)
    counts = defaultdict[tuple[str, str], int](int)
    for selection in selections:
        counts[selection.target, selection.environment] += sum(map(selection.runs, tests))
    lines = [f"make {target}, tox -e {name}: {n} tests" for (target, name), n in counts.items()]
    left = nowhere(tests, selections)
    apart = sum(test.is_apart for test in tests)
    by_file = Counter(test.name.partition("::")[0] for test in left)
    lines += [f"{count:6} {name}" for name, count in sorted(by_file.items())]
    lines.append(
        f"{len(tests)} tests: {apart} on GPUs, {len(left)} run nowhere, "
        f"{sum(bool(test.needs & MACHINE.keys()) for test in tests)} need what a machine may lack"
    )
    return lines


@cache
def _environments_with(needs: tuple[str, ...]) -> str:
    """Names of environments that state that they have all that is needed."""
    environments = read_environments()
    return " or ".join(
        name
        for name in environments
        if any(frozenset(needs) <= it.has for it in calls_of_pytest(name, environments))
    )

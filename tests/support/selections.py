"""The tests that each environment of tox runs, as its commands say, and those that none runs."""

from __future__ import annotations

import argparse
import configparser
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from attrs import frozen
from needs import MACHINE, ROOT

TARGETS = ("test", "test-slow", "test-all")
"""Targets of make that run tests, besides ``test-long``."""

_REFERENCE = re.compile(r"\{\[([\w:-]+)\](\w+)\}")


@frozen
class Facts:
    """A test, as far as it matters where it runs.

    Attributes:
        name: Its node in pytest.
        needs: Packages, and what machines may lack.
        marks: Names of its marks.
    """

    name: str
    needs: frozenset[str]
    marks: frozenset[str]

    @property
    def is_apart(self) -> bool:
        """True for a test on a GPU, which no environment has for certain."""
        return "gpu" in self.needs


@frozen
class Selection:
    """A call of pytest by tox.

    Attributes:
        target: Of make.
        environment: Of tox.
        has: Packages that the environment has.
        needing: Of which a test has to need one at least; empty for any test.
        expression: Over marks; empty for any test.
        paths: Of files, folders or nodes; empty for all.
    """

    target: str
    environment: str
    has: frozenset[str]
    needing: frozenset[str]
    expression: str
    paths: tuple[str, ...]

    def runs(self, test: Facts) -> bool:
        """True for a test that is selected, and not skipped for a package."""
        return (
            test.needs - MACHINE.keys() <= self.has
            and (not self.needing or bool(test.needs & self.needing))
            and (not self.paths or any(_is_within(test.name, path) for path in self.paths))
            and holds(self.expression, test.marks)
        )


def _is_within(name: str, path: str) -> bool:
    return name == path or name.startswith((f"{path}/", f"{path}::", f"{path}["))


def holds(expression: str, marks: frozenset[str]) -> bool:
    """True for marks that an expression selects, which is as pytest's ``-m``."""
    if not expression:
        return True
    names = {word: word in marks for word in _words(expression)}
    return bool(eval(expression, {"__builtins__": {}}, names))


def may_hold(expression: str, marks: frozenset[str]) -> bool:
    """True where an expression selects a test with some of the marks."""
    able = sorted(marks & _words(expression))
    return any(
        holds(expression, frozenset(some))
        for count in range(len(able) + 1)
        for some in combinations(able, count)
    )


def _words(expression: str) -> set[str]:
    return set(re.findall(r"\w+", expression)) - {"and", "or", "not"}


def nowhere(tests: Iterable[Facts], selections: Sequence[Selection]) -> list[Facts]:
    """The tests that no selection runs, tests on GPUs apart."""
    return [
        test
        for test in tests
        if not test.is_apart and not any(selection.runs(test) for selection in selections)
    ]


def all_selections(tox_ini: Path = ROOT / "tox.ini") -> list[Selection]:
    """The calls of pytest that the targets of make that run tests make."""
    environments = read_environments(tox_ini)
    calls = [(target, call) for target in TARGETS for call in _calls_of_make(target)]
    calls += [("test-long", call) for call in _calls_of_test_long()]
    return [
        selection
        for target, call in calls
        for name, given in _of_tox(call)
        for selection in calls_of_pytest(name, environments, given, target)
    ]


def read_environments(tox_ini: Path = ROOT / "tox.ini") -> Mapping[str, str]:
    """The commands of each environment of a ``tox.ini``."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(tox_ini.read_text(encoding="utf-8"))

    def resolved(text: str) -> str:
        while found := _REFERENCE.search(text):
            text = text.replace(found[0], parser[found[1]][found[2]])
        return text

    return {
        section.partition(":")[2]: resolved(parser[section].get("commands", ""))
        for section in parser.sections()
        if section.startswith("testenv:")
    }


def _calls_of_make(target: str) -> Iterator[list[str]]:
    plain = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", target],
        cwd=ROOT,
        env=plain,
        capture_output=True,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        words = shlex.split(line, comments=True)
        if words and Path(words[0]).name == "tox":
            yield words[1:]


def _calls_of_test_long() -> Iterator[list[str]]:
    scripts = str(ROOT / "scripts")
    sys.path.insert(0, scripts)
    try:
        chunks = importlib.import_module("test_long").chunks()
    finally:
        sys.path.remove(scripts)
        for name in ("test_long", "wheels"):
            sys.modules.pop(name, None)
    return (list(chunk) for chunk in chunks.values())


def _of_tox(call: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Names of environments whose commands are run, and what these are given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("-e", default="")
    parser.add_argument("-x", action="append", default=[])
    parser.add_argument("-p")
    parser.add_argument("--notest", action="store_true")
    end = call.index("--") if "--" in call else len(call)
    known = parser.parse_args(list(call[:end]))
    if known.notest or not known.command.startswith("run"):
        return
    for name in known.e.split(","):
        if f"testenv:{name}.commands=" not in known.x:
            yield name, call[end + 1 :]


def calls_of_pytest(
    name: str, environments: Mapping[str, str], given: Sequence[str] = (), target: str = ""
) -> Iterator[Selection]:
    """The calls of an environment, of a target of make where it is one, that is given more."""
    for line in environments[name].splitlines():
        words = shlex.split(re.sub(r"\{posargs:?([^}]*)\}", r"{posargs} \1", line))
        defaults = words[words.index("{posargs}") + 1 :] if "{posargs}" in words else []
        if "{posargs}" in words:
            words[words.index("{posargs}") :] = given or defaults
        if "pytest" in words:
            yield _of_pytest(target, name, words[words.index("pytest") + 1 :])


def _of_pytest(target: str, environment: str, words: Sequence[str]) -> Selection:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in ("-n", "--dist", "--timeout", "--durations", "--durations-min", "--capture"):
        parser.add_argument(option)
    parser.add_argument("--hypothesis-profile")
    parser.add_argument("-m", default="")
    parser.add_argument("--has", type=names, default=frozenset())
    parser.add_argument("--needing", type=names, default=frozenset())
    parser.add_argument("paths", nargs="*")
    known = parser.parse_args(list(words))
    missing = [path for path in known.paths if not (ROOT / path.partition("::")[0]).exists()]
    if missing:
        raise ValueError(f"tox -e {environment} is given {missing[0]}, which is not there")
    return Selection(target, environment, known.has, known.needing, known.m, tuple(known.paths))


def names(text: str) -> frozenset[str]:
    """Names of packages, as `--has` and `--needing` are given them."""
    return frozenset(text.split(","))

"""A faulty part is one line that names it, and the command ends with status 2."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attack_cases import sampled
from command_lines import IN_PROCESS, TUNE

pytestmark = pytest.mark.attack("faulty plugin")

FAULTS = {
    "ValueError": 'raise ValueError("no luck")',
    "SystemExit": "raise SystemExit(0)",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "GeneratorExit": "raise GeneratorExit",
    "StopIteration": "raise StopIteration",
    "RecursionError": "return (lambda f: f(f))(lambda f: f(f))",
    "an exception without a text": "raise type('Mute', (Exception,), {'__str__': lambda s: 1/0})",
    "an escape code": 'raise ValueError("\\x1b[2J")',
    "nothing": "return None",
    "a number": "return 5",
    "a text": 'return "x"',
    "a list of None": "return [None]",
    "an endless text": "return 'x' * 10_000_000",
}
STRATEGY = """
from autotune.search.strategies import RandomStrategy

class Part(RandomStrategy):
    name = "faulty"

    def {method}(self, *arguments):
        {fault}
"""
SPACE = """
def Part(context):
    {fault}
"""
# What is right to return there: the run goes on, or the space is exhausted.
HARMLESS = {("ask", "nothing"), ("tell", "*"), ("__init__", "*")}


def cases() -> dict[str, tuple[str, str]]:
    """The option and the source of each faulty part."""
    found = {}
    for method in ("ask", "tell", "state", "__init__"):
        for name, fault in FAULTS.items():
            returns = fault.startswith("return") and name != "RecursionError"
            if (method, name) in HARMLESS or (returns and (method, "*") in HARMLESS):
                continue
            source = STRATEGY.format(method=method, fault=fault)
            found[f"strategy: {method} gives {name}"] = ("--strategy", source)
    for name, fault in FAULTS.items():
        found[f"space: {name}"] = ("--space", SPACE.format(fault=fault))
    return found


CASES = cases()


@pytest.mark.parametrize("case", sampled(CASES, now=6, slow=12, least=40))
@pytest.mark.promise(
    "a plugin's part that raises, exits or returns nonsense",
    "one line that names the part; what was measured is kept",
)
def test_a_faulty_part(
    case: tuple[str, str],
    command: Callable[..., Any],
    verdict: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    option, source = case
    # A name of its own: modules stay imported.
    module = f"faulty_{zlib.crc32(request.node.name.encode())}"
    Path(f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    budget = ("--trials", "8", "--round-size", "4", "--quiet")
    done = command(*TUNE, *IN_PROCESS, *budget, option, f"{module}:Part")
    line = done.line()
    assert module in line or "faulty" in line, line
    assert command("records", "check").status in (0, 2)
    verdict("named")

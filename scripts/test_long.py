"""Runs what takes hours, chunk by chunk: sanitizers, every seed, lesser processors, mutations.

Usage: python scripts/test_long.py TOX [CHUNK ...]

Chunks that have passed with the same sources are not run again: after an interrupt, or once a
failure is repaired elsewhere than in the sources, this goes on where it was.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

from wheels import PROJECTS, ROOT, digest

PASSED = ROOT / ".tox" / "long.json"
EVERYTHING = ("-m", "", "--hypothesis-profile", "long", "--timeout", "7200")
MUTATE = ("exec", "-e", "tests", "--", "python", "-u", "scripts/mutate.py")
ATTACKS = 20_000
# These compare what is detected with what the processor itself says.
OF_THE_PROCESSOR = (
    "tests/native/test_machine_probe.py::test_fma_rate_is_what_the_instruction_set_allows",
    "tests/targets/test_rates.py::test_peaks_are_those_of_the_instructions",
)
SUMMARY = re.compile(
    r"^=*\s*(\d+ (?:passed|failed|error).*? in [\d.]+s|\d+ of \d+ mistakes.*)", re.MULTILINE
)


def chunks() -> dict[str, tuple[str, ...]]:
    """Chunks to run: arguments of tox by name."""
    rooms = {path.relative_to(ROOT).parts[1] for path in ROOT.glob("tests/*/**/test_*.py")} - {
        "fuzz"
    }
    names = [*(f"tests/{room}" for room in sorted(rooms)), "plugins/felix", "plugins/heron"]
    names += ["plugins/mlir", "plugins/perf", "plugins/tvm"]
    return {
        "sanitizers": ("run", "-e", "sanitize"),
        "torch": ("run", "-e", "torch", "--", *EVERYTHING),
        "torch-latest": ("run", "-e", "torch-latest"),
        "cuda": ("run", "-e", "cuda"),
        "hooks": ("run", "-e", "hooks"),
        "ray": ("run", "-e", "ray", "--", *EVERYTHING),
        **{name: ("run", "-e", "tests", "--", *EVERYTHING, name) for name in names},
        # What tests take for granted of the machine that they were written on.
        "without-avx512": (
            *("exec", "-e", "tests", "--", "python", "scripts/hide_flags.py", "avx512,amx"),
            *("-m", "pytest", "-n", "3", "--dist", "worksteal", "--timeout", "900"),
            *("-m", "not long", *(f"--deselect={name}" for name in OF_THE_PROCESSOR)),
        ),
        "mutations": (*MUTATE, "5"),
        "gradients": (*MUTATE, "--every", "search/schedulers/gradients.py", "--properties"),
    }


def main() -> int:
    """Runs the chunks that are named, or all; the number of those that failed."""
    tox, *wanted = sys.argv[1:] or sys.exit(__doc__)
    sources = "".join(digest(project, ("pyproject.toml", "src", "tests")) for project in PROJECTS)
    sources += digest(ROOT, ("native", "tox.ini", "conftest.py", "docs", "benchmarks"))
    found = json.loads(PASSED.read_text(encoding="utf-8")) if PASSED.exists() else {}
    passed: dict[str, str] = found.get("passed", {}) if found.get("sources") == sources else {}
    every = chunks()
    failed: dict[str, str] = {}
    for name in wanted or every:
        if name in passed:
            continue
        start = time.monotonic()
        print(f"+ {name}", flush=True)
        status, counts = run([tox, *every[name]])
        counts = f"{counts}; {time.monotonic() - start:.0f} s in all"
        (failed if status else passed)[name] = counts
        PASSED.write_text(json.dumps({"sources": sources, "passed": passed}), encoding="utf-8")
    print(f"every fuzz test made {ATTACKS} attacks")
    for name, counts in [*passed.items(), *failed.items()]:
        print(f"{'FAILED' if name in failed else 'passed'}  {name}: {counts}")
    return len(failed)


def run(command: list[str]) -> tuple[int, str]:
    """Shows what a command prints; its status and the summary of its tests."""
    environment = {**os.environ, "AUTOTUNE_FUZZ_CASES": str(ATTACKS)}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(re.sub(r"\x1b\[[0-9;]*m", "", line))
    return process.wait(), "; ".join(SUMMARY.findall("".join(lines))) or "no tests"


if __name__ == "__main__":
    sys.exit(main())

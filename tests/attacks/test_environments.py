"""Wherever a command is run, it ends with its result, or with one line and status 2."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attack_cases import sampled
from attrs import field, frozen
from command_lines import IN_PROCESS, TUNE
from python_processes import python_environment

pytestmark = pytest.mark.attack("environment")

BEST = ("best",)
RUN = (*TUNE, *IN_PROCESS, "--trials", "4", "--quiet", "--json", "-")


@frozen
class Surroundings:
    """Surroundings of a command.

    Attributes:
        call: Its arguments.
        variables: Of its environment; None for those that are taken away.
        shell: What a shell does before it, and with its streams; ``"$@"`` is the command.
        statuses: With which it may end.
    """

    call: tuple[str, ...] = BEST
    variables: dict[str, str | None] = field(factory=dict)
    shell: str = '"$@"'
    statuses: tuple[int, ...] = (0,)


REFUSED = (0, 2)
CASES = {
    "no HOME": Surroundings(RUN, {"HOME": None}),
    "a HOME that is missing": Surroundings(RUN, {"HOME": "/no/such/home"}),
    "no PATH": Surroundings(RUN, {"PATH": None}),
    "no TERM": Surroundings(variables={"TERM": None}),
    "a dumb terminal": Surroundings(variables={"TERM": "dumb", "COLUMNS": "0"}),
    "one column": Surroundings(variables={"COLUMNS": "1"}),
    "columns that are no number": Surroundings(variables={"COLUMNS": "many"}),
    "the C locale": Surroundings(RUN, {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}),
    "an unknown locale": Surroundings(variables={"LANG": "xx_XX", "LC_ALL": "xx_XX"}),
    "ASCII streams": Surroundings(variables={"PYTHONIOENCODING": "ascii"}),
    "an unknown time zone": Surroundings(RUN, {"TZ": "Nowhere/Land"}),
    "a TMPDIR that is missing": Surroundings(RUN, {"TMPDIR": "/no/such/folder"}, statuses=REFUSED),
    "a TMPDIR that is a file": Surroundings(RUN, {"TMPDIR": "/etc/hostname"}, statuses=REFUSED),
    "an empty TMPDIR": Surroundings(RUN, {"TMPDIR": ""}),
    "no assertions": Surroundings(RUN, {"PYTHONOPTIMIZE": "2"}),
    "warnings as errors": Surroundings(variables={"PYTHONWARNINGS": "error"}),
    "another hash seed": Surroundings(RUN, {"PYTHONHASHSEED": "1"}),
    "no bytecode": Surroundings(variables={"PYTHONDONTWRITEBYTECODE": "1"}),
    "threads of OpenMP that are none": Surroundings(RUN, {"OMP_NUM_THREADS": "0"}),
    "a full standard output": Surroundings(shell='"$@" > /dev/full', statuses=(2,)),
    "a full standard error": Surroundings(shell='"$@" 2> /dev/full'),
    "a reader that leaves": Surroundings(shell='"$@" | head -c 1 > /dev/null'),
    "no standard input": Surroundings(RUN, shell='"$@" < /dev/null'),
    "an input without end": Surroundings(shell='"$@" < /dev/zero'),
    "few open files": Surroundings(RUN, shell='ulimit -n 32; "$@"', statuses=REFUSED),
    "a small stack": Surroundings(shell='ulimit -s 512; "$@"', statuses=REFUSED),
    "no core files": Surroundings(shell='ulimit -c 0; "$@"'),
    "a strict umask": Surroundings(RUN, shell='umask 077; "$@"'),
    "a low priority": Surroundings(RUN, shell='exec nice -n 19 "$@"'),
    "signals that are ignored": Surroundings(RUN, shell='trap "" HUP PIPE CHLD; "$@"'),
    "a background job": Surroundings(RUN, shell='"$@" & wait $!'),
    "a folder that is gone": Surroundings(
        ("best", "--database", "autotune.db"),
        shell='mkdir gone; cd gone; rmdir ../gone; "$@"',
        statuses=(2,),
    ),
    "a folder of another alphabet": Surroundings(
        RUN, shell='mkdir "ünï ćødé\n"; cd "ünï ćødé\n"; "$@"'
    ),
    "a folder that is no UTF-8": Surroundings(
        RUN, shell='d=$(printf "\\377"); mkdir "$d"; cd "$d"; "$@"', statuses=REFUSED
    ),
}


@pytest.mark.parametrize("case", sampled(CASES, now=2, slow=7, least=30))
@pytest.mark.promise(
    "an environment in which something is missing, full or limited",
    "the command ends with its result, or with one line and status 2",
)
def test_an_environment(
    case: Surroundings,
    tuned_database: Path,
    tmp_path: Path,
    verdict: Callable[[str], None],
) -> None:
    shutil.copy(tuned_database, tmp_path / "autotune.db")
    done = subprocess.run(
        ["/bin/sh", "-c", case.shell, "sh", sys.executable, "-m", "autotune", *case.call],
        cwd=tmp_path,
        env=python_environment(**case.variables),
        capture_output=True,
        timeout=300,
    )
    stdout, stderr = (os.fsdecode(stream) for stream in (done.stdout, done.stderr))
    assert done.returncode in case.statuses, (done.returncode, stdout, stderr)
    assert "Traceback" not in stderr, stderr
    if done.returncode:
        assert stderr.splitlines()[-1].startswith("autotune: error: "), stderr
    verdict("refused" if done.returncode else "done")

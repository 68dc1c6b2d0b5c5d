"""Checkpoints: the state that resumes a run, and the process that owns it."""

from __future__ import annotations

import functools
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from autotune.errors import DatabaseError, InvalidValueError
from autotune.ir.converter import from_json, json_forms, object_form, to_json
from autotune.store.records import Confirmation, Contest, Outcome, Run, WarmSource
from autotune.store.trial_log import TrialLog
from autotune.tuning.options import unused_by

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = [
    "CHECKPOINT_VERSION",
    "Checkpoint",
    "Progress",
    "decided",
    "is_being_worked_on",
    "new_run_id",
    "this_process",
    "why_not_resumable",
]

CHECKPOINT_VERSION = 2


def why_not_resumable(run: Run) -> str:
    """Say why no call continues a run; "" where one may."""
    if run.checkpoint is None:
        return "it has no checkpoint"
    version = run.checkpoint.get("version")
    if version != CHECKPOINT_VERSION:
        return f"its checkpoint has version {version}, this autotune reads {CHECKPOINT_VERSION}"
    unused = [kind.replace("_", " ") for kind in unused_by(run.strategy) if kind in run.options]
    if unused:
        return f"its strategy {run.strategy!r} asks no {' and no '.join(unused)}"
    return ""


def decided(run: Run) -> dict[str, Any]:
    """The identity of a run, without parts that its strategy does not use."""
    unused = unused_by(run.strategy)
    left_out = {"fresh", "network", "task_names", *unused, *(f"{kind}_options" for kind in unused)}
    return {name: value for name, value in run.options.items() if name not in left_out}


@frozen(eq=False)
class Progress:
    """The progress of a run, whether or not the search state includes it.

    ``contests`` are those of the programs that several backends compete for, by name;
    ``baselines`` the outcomes of untuned programs: a database does not tell of one that took too
    long; ``used_up`` the largest budget of seconds that was used up, with what the callers kept;
    ``warm_starts`` what each task began with, and empty where none began with anything.
    """

    logs: tuple[TrialLog, ...]
    baselines: tuple[Outcome | None, ...]
    confirmations: tuple[Confirmation | None, ...]
    seconds: Mapping[str, float] = field(factory=dict)
    reason: str = ""
    contests: Mapping[str, Contest] = field(factory=dict)
    used_up: float = 0.0
    warm_starts: tuple[tuple[WarmSource, ...], ...] = ()

    def warm_start(self, task: int) -> tuple[WarmSource, ...]:
        """Warm start of a task."""
        return self.warm_starts[task] if self.warm_starts else ()

    @property
    def trials(self) -> int:
        """Trials of all tasks."""
        return sum(map(len, self.logs))


@frozen(eq=False)
class Checkpoint:
    """A run's durable state.

    Attributes:
        search: State of scheduler, strategies and cost model after the last complete round, with
            the trials that each task had then; None before the first. What was measured since is
            proposed again from this state and answered by the run's own records, so that a run
            that is stopped anywhere proposes what an unstopped one does.
        progress: What the run has done.
        owner: The process at work on the run.
    """

    search: Mapping[str, Any] | None
    progress: Progress
    owner: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`from_json` reads back."""
        return {"version": CHECKPOINT_VERSION, **to_json(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any], tasks: int) -> Checkpoint:
        """Read what :meth:`to_json` wrote for a run of ``tasks`` tasks.

        Raises:
            DatabaseError: the object is no checkpoint of such a run, or of another version.
        """
        try:
            version = data["version"]
            if version != CHECKPOINT_VERSION:
                raise DatabaseError(
                    f"the run's checkpoint has version {version}, this autotune reads "
                    f"{CHECKPOINT_VERSION}; start over with fresh=True (--fresh)"
                )
            checkpoint = from_json(Checkpoint, data)
            found = len(checkpoint.progress.logs), len(checkpoint.progress.baselines)
            if found != (tasks, tasks):
                raise InvalidValueError(f"it has {found[0]} tasks and not {tasks}")
            return checkpoint
        except (KeyError, TypeError, InvalidValueError) as error:
            raise DatabaseError(
                f"the run's checkpoint is damaged ({error}); start over with fresh=True (--fresh)"
            ) from error

    @staticmethod
    def empty(tasks: int) -> Checkpoint:
        """The state of a run of ``tasks`` tasks in which nothing has happened."""
        logs: Sequence[TrialLog] = [TrialLog() for _ in range(tasks)]
        return Checkpoint(None, Progress(tuple(logs), (None,) * tasks, (None,) * tasks))


@json_forms
def _forms(converter: Converter) -> None:
    object_form(converter, Progress, required=("seconds", "reason"), ignores_others=True)
    object_form(
        converter,
        Checkpoint,
        required=("owner",),
        ignores_others=True,
        order=("owner", "search"),
    )


def new_run_id() -> str:
    """A name for a run that no other run has."""
    return secrets.token_hex(6)


def this_process() -> str:
    """Names this process among all of this machine since it was started."""
    return _named(os.getpid())


@functools.cache
def _named(pid: int) -> str:
    return f"{socket.gethostname()}:{pid}:{_start_time(pid)}"


def is_being_worked_on(run: Run) -> bool:
    """Return whether another living process of this machine owns ``run``.

    A process that was killed leaves its run behind as ``running``; a second one of the same kind
    must not join in while the first one lives. Processes of other machines are not seen.
    """
    owner = str((run.checkpoint or {}).get("owner", ""))
    if run.status != "running" or owner == this_process():
        return False
    host, pid, started = owner.rsplit(":", 2) if owner.count(":") >= 2 else ("", "", "")
    return host == socket.gethostname() and pid.isdigit() and _start_time(int(pid)) == started


def _start_time(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; "" when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The second field is the command in parentheses, which may hold anything.
    return text.rpartition(")")[2].split()[19]

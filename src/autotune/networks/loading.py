"""Loading a model through a frontend within a limit, and finding tasks that compute the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import astuple, define, evolve, field, frozen

from autotune.backends import Backend, ImportedProgram
from autotune.errors import AutotuneError, InvalidValueError, PluginError
from autotune.ir.workloads import Workload
from autotune.networks.frontend import LoadOptions, NetworkProgram, NetworkTask, PassReport
from autotune.networks.model_files import check_file
from autotune.networks.source import Source, find_frontend
from autotune.plugins import PluginSpec
from autotune.plugins.guarded_parts import create_held_part
from autotune.process.deadline import Deadline
from autotune.targets import Target
from autotune.tuning.options import TuneOptions

__all__ = ["ImportLimit", "UniqueTask", "load_network", "read_passes", "unique_tasks"]

# A byte counts as so many operations: about what a CPU does while it reads one from a cache.
_FLOP_PER_BYTE = 2


@frozen(eq=False)
class UniqueTask(NetworkTask):
    """Tasks of a network that compute the same, as the first of them with calls of all.

    Attributes:
        names: Of all of them.
        imported: The program as the backend imports it; None where it cannot, and of a workload.
        workload: What they compute; None where the backend cannot say.
        refusal: Why it cannot be tuned, in one line; "" where it can.
    """

    names: tuple[str, ...] = field(kw_only=True)
    imported: ImportedProgram | None = field(default=None, kw_only=True)
    workload: Workload | None = field(default=None, kw_only=True)
    refusal: str = field(default="", kw_only=True)

    @property
    def is_tunable(self) -> bool:
        """True if it gets a part of the budget."""
        return not (self.view or self.refusal)

    @property
    def total_flop(self) -> float:
        """Of all calls in one inference."""
        return self.occurrences * self.flop

    @property
    def work(self) -> float:
        """Expected work of a call before any is timed: operations, or traffic counted as such."""
        traffic = 0.0 if self.workload is None else self.workload.io_bytes * _FLOP_PER_BYTE
        return max(self.flop, traffic)


def load_network(
    source: Source,
    target: Target,
    threads: int,
    *,
    frontend: str | None = None,
    passes: Mapping[str, Callable[[Any], Any] | None] | None = None,
    on_pass: Callable[[PassReport], None] = lambda report: None,
) -> NetworkProgram:
    """Read a model, and check what the frontend says of it.

    Args:
        source: The model.
        target: What the network runs on.
        threads: How many threads it uses.
        frontend: Name of the frontend; None for the first that accepts the source.
        passes: As of :class:`~autotune.networks.LoadOptions`.
        on_pass: Told of every pass once it is done.

    Raises:
        UnsupportedWorkload: names the node that cannot be expressed.
        InvalidValueError: the source cannot be read, or no frontend reads such sources.
        UnknownNameError: there is no such frontend, or no such pass.
        PluginError: the frontend is at fault.
    """
    reader = find_frontend(source, frontend, target)
    if isinstance(source.model, Path):
        check_file(source.model, frontend or reader.name, partial(reader.warm_up, source.model))
    options = LoadOptions(target, threads, dict(passes or {}), on_pass, source.asked)
    network = reader.load(source.model, source.example_inputs, options)
    network.wide = source.wide
    network.kernel_backends = reader.kernel_backends(target)
    noun = f"frontend {reader.name!r}"
    if source.asked and network.fixed is None:
        given = ", ".join([*source.asked.dims, *source.asked.inputs])
        raise InvalidValueError(
            f"{noun} takes no lengths of axes and no inputs, and {given} is given: let the model "
            "say them"
        )
    names = [task.name for task in network.tasks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PluginError(f"{noun} calls several tasks {twice[0]!r}")
    for task in network.tasks:
        if task.occurrences < 1 or not task.flop >= 0:
            raise PluginError(
                f"{noun}: task {task.name!r} has {task.occurrences} occurrences of "
                f"{task.flop} flop"
            )
    return network


def read_passes(texts: Sequence[str]) -> dict[str, Callable[[Any], Any] | None]:
    """Replacements of passes from texts: ``NAME=off``, or ``NAME=module:function``.

    Raises:
        InvalidValueError: a text is of no such form, or a pass is named twice.
        PluginError: a function cannot be imported.
    """
    found: dict[str, Callable[[Any], Any] | None] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and (value == "off" or ":" in value)):
            raise InvalidValueError(
                f"pass {text!r} is not of the form NAME=off or NAME=module:function"
            )
        if name in found:
            raise InvalidValueError(f"pass {name!r} is named twice")
        spec = PluginSpec("frontend", "pass", value, "by import string")
        found[name] = None if value == "off" else spec.resolve()
    return found


def unique_tasks(network: NetworkProgram) -> tuple[UniqueTask, ...]:
    """The tasks of a network, those that compute the same as one, in order of the first call.

    What the backend cannot import stays a task of its own, with the reason.
    """
    backend: Backend = create_held_part("backend", network.backend)
    found: dict[str, UniqueTask] = {}
    for task in network.tasks:
        imported, refusal, workload = None, "", None
        if isinstance(task.program, Workload):
            workload = evolve(task.program, name=task.name)
        elif not task.view:
            imported, refusal = _imported(backend, task)
            workload = None if imported is None else imported.workload
        digest = task.name if workload is None else workload.digest
        first = found.get(digest)
        if first is None:
            found[digest] = UniqueTask(
                *astuple(task, recurse=False),
                names=(task.name,),
                imported=imported,
                workload=workload,
                refusal=refusal,
            )
        else:
            found[digest] = evolve(
                first,
                names=(*first.names, task.name),
                occurrences=first.occurrences + task.occurrences,
                nodes=(*first.nodes, *task.nodes),
            )
    return tuple(found.values())


def _imported(backend: Backend, task: NetworkTask) -> tuple[ImportedProgram | None, str]:
    """The program of a task as the backend imports it, called as the task; or why it cannot.

    Records are found by that name; the program's own is the same for many.
    """
    try:
        imported = backend.import_program(task.program)
        return evolve(imported, workload=evolve(imported.workload, name=task.name)), ""
    except AutotuneError as error:
        return None, str(error)


@define(eq=False)
class ImportLimit:
    """The time in which a model has to be read, imported and checked.

    Attributes:
        name: What a person calls the model.
        seconds: The limit of the whole call; infinite for none.
        spent: Seconds since the call began.
        give_up: As of :class:`Deadline`.
        doing: What is being done, for the error: ``"it was read"``.
    """

    name: str
    seconds: float = math.inf
    spent: Callable[[], float] = field(default=float)
    give_up: Callable[[AutotuneError], object] | None = None
    doing: str = ""

    @classmethod
    def of(
        cls,
        options: TuneOptions,
        name: str,
        spent: Callable[[], float],
        give_up: Callable[[AutotuneError], object] | None = None,
    ) -> ImportLimit:
        """Limit of a call with these options."""
        limits = [it for it in (options.time, options.session_time) if it is not None]
        return cls(name, min(limits, default=math.inf), spent, give_up)

    def during(self, doing: str) -> Deadline:
        """A context in which a part of the import is given up when the time is over.

        Args:
            doing: What is done first; ``doing`` may be changed inside.
        """
        self.doing = doing
        return Deadline(self.seconds - self.spent(), self._error, self.give_up)

    def _error(self) -> AutotuneError:
        return InvalidValueError(
            f"{self.name}: no time was left to tune: {self.seconds:g} s were over while "
            f"{self.doing}; give it more time (--time)"
        )

"""The processes that a run shares among its tasks, which need not be known to start them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from attrs import define, field

from autotune.errors import DatabaseError
from autotune.measure import SharedWorkers
from autotune.measure.workers import WorkerSetup
from autotune.models.host import ModelHost
from autotune.store.records import Run
from autotune.store.sqlite import open_database
from autotune.tuning.choices import KINDS
from autotune.tuning.options import TuneOptions
from autotune.tuning.resolve import model_hosts
from autotune.tuning.resume import Checkpoint, decided
from autotune.tuning.run_plan import Budget

__all__ = ["RunProcesses", "is_probably_answered"]


@define(eq=False)
class RunProcesses:
    """Workers and models of a run; a context manager, which ends them.

    Models get ready in the background from entering it on, unless they are started late.

    Attributes:
        options: Of the run, with its backends.
        starts_late: Whether models and workers are started only once they are needed.
        prefers_first: Whether those of the first backend only get ready: it probably takes all
            programs.
        models: What holds the models for each backend.
        workers: Those that measurers share.
    """

    options: TuneOptions
    starts_late: bool = field(default=False, kw_only=True)
    prefers_first: bool = field(default=False, kw_only=True)
    models: Mapping[str, ModelHost] = field(init=False)
    workers: SharedWorkers = field(factory=SharedWorkers, init=False)
    _ending: ExitStack = field(factory=ExitStack, init=False)

    def __enter__(self) -> RunProcesses:
        self.models = model_hosts(self.options)
        with ExitStack() as stack:
            stack.callback(self.workers.close)
            for backend, host in self.models.items():
                stack.callback(host.close)
                if not self.starts_late and backend in self._early:
                    host.start()
            self._ending = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ending.close()

    def start_workers(self) -> None:
        """Start those that the usual measurer takes, where they are processes of this machine.

        A device is left alone: until a run begins, other processes may need its memory. Where
        they are started late, a measurer starts them.
        """
        if self.starts_late:
            return
        options = self.options
        is_usual = options.chosen["measurer"].name == KINDS["measurer"]
        if not is_usual or options.uses_engine or options.machine.kind != "cpu":
            return
        for backend in self._early:
            setup = WorkerSetup(
                backend,
                options.machine,
                options.machine.cores,
                options.protocol,
                options.observers,
            )
            self.workers.get(setup).start()

    @property
    def _early(self) -> tuple[str, ...]:
        return self.options.backend[:1] if self.prefers_first else self.options.backend


def is_probably_answered(options: TuneOptions, network: str) -> bool:
    """Return whether a network need not be measured, as far as can be told before it is read.

    The database has a finished run of the same options, whose network has the same key. It is
    another network, or another version of a part, that makes this wrong: a run starts its workers
    when it needs them then.

    Args:
        options: Of the run, with its backends.
        network: As :attr:`Run.network`.
    """
    if options.fresh:
        return False
    try:
        with open_database(options.database, read_only=True) as database:
            return any(_answers(run, options) for run in database.runs_of_network(network))
    except DatabaseError:
        return False


def _answers(run: Run, options: TuneOptions) -> bool:
    asked = run.status, run.key.backend, run.key.target, run.key.threads
    machine = options.machine
    wanted = "finished", options.backend[0], machine.fingerprint, machine.cores
    if asked != wanted or run.checkpoint is None or run.seed != options.seed:
        return False
    own = decided(run)
    tasks = len(own.pop("tasks", [run.workload]))
    # What the network decides, which is not read yet.
    own = {name: value for name, value in own.items() if name not in ("weights", "programs")}
    if own != options.decisions(tasks) or run.strategy != options.chosen["strategy"].name:
        return False
    progress = Checkpoint.from_json(run.checkpoint, tasks).progress
    return Budget.of(options, tasks).is_used_up(progress)

"""The processes that a run shares among its tasks, which need not be known to start them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from attrs import define, field

from autotune.measure import SharedWorkers
from autotune.measure.workers import WorkerSetup
from autotune.models.host import ModelHost
from autotune.tuning.choices import KINDS
from autotune.tuning.options import TuneOptions
from autotune.tuning.resolve import model_hosts

__all__ = ["RunProcesses"]


@define(eq=False)
class RunProcesses:
    """Workers and models of a run; a context manager, which ends them.

    Models get ready in the background from entering it on.

    Attributes:
        options: Of the run, with its backends.
        models: What holds the models for each backend.
        workers: Those that measurers share.
    """

    options: TuneOptions
    models: Mapping[str, ModelHost] = field(init=False)
    workers: SharedWorkers = field(factory=SharedWorkers, init=False)
    _ending: ExitStack = field(factory=ExitStack, init=False)

    def __enter__(self) -> RunProcesses:
        self.models = model_hosts(self.options)
        with ExitStack() as stack:
            stack.callback(self.workers.close)
            for host in self.models.values():
                stack.enter_context(host)
            self._ending = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ending.close()

    def start_workers(self) -> None:
        """Start those that the usual measurer takes, where they are processes of this machine.

        A device is left alone: until a run begins, its memory is for whoever else needs it.
        """
        options = self.options
        is_usual = options.chosen["measurer"].name == KINDS["measurer"]
        if not is_usual or options.uses_engine or options.machine.kind != "cpu":
            return
        for backend in options.backend:
            setup = WorkerSetup(
                backend,
                options.machine,
                options.machine.cores,
                options.protocol,
                options.observers,
            )
            self.workers.get(setup).start()

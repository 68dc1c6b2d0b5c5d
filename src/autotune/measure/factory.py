"""The measurer ``local``, made for a task of a run."""

from __future__ import annotations

from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.measurer import MeasurerContext
from autotune.plugins.options import NoOptions, read_options

__all__ = ["make_local_measurer"]


def make_local_measurer(context: MeasurerContext) -> LocalMeasurer:
    """A :class:`~autotune.measure.LocalMeasurer` for the context's workload.

    Raises:
        InvalidValueError: an option is given.
    """
    read_options("measurer 'local'", NoOptions, context.options)
    setup = context.setup
    return LocalMeasurer(
        setup.backend,
        setup.target,
        setup.threads,
        context.workload,
        context.program,
        protocol=setup.protocol,
        observers=setup.observers,
        seed=context.seed,
        shared=context.workers,
    )

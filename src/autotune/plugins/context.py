"""The context that factories of parts receive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    import numpy as np

    from autotune.ir.workloads import Workload
    from autotune.targets import Target

__all__ = ["Context"]

_ABSENT: Any = None


@frozen(eq=False)
class Context:
    """All that a factory is given, whatever it makes: time, randomness and machine come from here.

    What a kind of part has no use for is left empty; the table of kinds in ``docs/plugins.md``
    says what each gets. Types of later rooms are named in text only.

    Attributes:
        space: A :class:`~autotune.spaces.SearchSpace`, of a strategy.
        rng: The generator of a strategy.
        cost_model: A :class:`~autotune.models.cost.CostModel`, of a strategy. It may score all
            candidates the same, at first or from any moment on: ties are best broken at random.
        pruning_model: A :class:`~autotune.models.pruning.PruningModel` or None, likewise.
        options: The user's options of this part, strings already converted to numbers where they
            came from a command line; a part refuses those that it does not know.
        target: What programs are made for.
        workload: What is computed.
        limits: The :class:`~autotune.spaces.ScheduleLimits` of the backend.
        tasks: A :class:`~autotune.search.schedulers.TaskInfo` for each task, of a scheduler.
        objective: What is minimised, a function of the latency of each program in seconds by
            the program's name, of a scheduler; None for the weighted sum.
        backend: Name of the backend, of a measurer or a search space.
        program: Text of the program that the backend has imported, or None, likewise.
        protocol: The :class:`~autotune.measure.MeasureProtocol` of a measurer.
        observers: Names of the observers of a measurer.
        workers: A :class:`~autotune.measure.SharedWorkers` that measurers of a run may share, or
            None, of a measurer.
        path: Where a database is, in its own spelling.
        read_only: Whether a database is to write nothing.
        warn: Told in one sentence what a database has lost, or None.
        seed: Of parts whose randomness has to cross processes.
        threads: That programs run on, and that a model may use.
    """

    space: Any = None
    rng: np.random.Generator = _ABSENT
    cost_model: Any = None
    pruning_model: Any = None
    options: Mapping[str, Any] = field(factory=dict)
    target: Target = field(default=_ABSENT, kw_only=True)
    workload: Workload = field(default=_ABSENT, kw_only=True)
    limits: Any = field(default=None, kw_only=True)
    tasks: Sequence[Any] = field(default=(), kw_only=True)
    objective: Callable[[Mapping[str, float]], float] | None = field(default=None, kw_only=True)
    backend: str = field(default="", kw_only=True)
    program: str | None = field(default=None, kw_only=True)
    protocol: Any = field(default=None, kw_only=True)
    observers: tuple[str, ...] = field(default=(), kw_only=True)
    workers: Any = field(default=None, kw_only=True)
    path: str = field(default="", kw_only=True)
    read_only: bool = field(default=False, kw_only=True)
    warn: Callable[[str], None] | None = field(default=None, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    threads: int = field(default=1, kw_only=True)

"""Choice of the CPUs that programs are timed on, and keeping their threads there."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from autotune import _native
from autotune.errors import InvalidValueError
from autotune.targets.detection import physical_cores

__all__ = ["confined", "pinned", "quiet_neighbour_matters", "timing_cpus"]

# A hardware thread beside a busy one gets 0.5 to 0.6 of its core's multiply-adds, a core beside a
# busy core 0.95 or more of its own: clocks fall a little where many cores work.
_SHARED_BELOW = 0.8
# Other processes only lower rates: one try that shows no effect is enough, one that does is not.
_TRIES = 5


def timing_cpus(
    threads: int, *, affinity: Collection[int] | None = None, root: Path = Path("/")
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Chooses where programs of ``threads`` threads are timed.

    Each thread gets a physical core of its own as long as there are enough; then the second
    hardware threads are used; then CPUs are used again.

    Args:
        threads: Threads of the programs.
        affinity: Logical CPUs to choose from; by default those that this process may use.
        root: Folder that holds `sys`.

    Returns:
        One CPU for each thread, and the CPUs on cores that none of them uses: work there disturbs
        the least.

    Raises:
        InvalidValueError: there are no threads or no CPUs.
    """
    usable = os.sched_getaffinity(0) if affinity is None else affinity
    if threads < 1 or not usable:
        raise InvalidValueError(
            f"timing needs a thread and a CPU at least, not {threads} threads and "
            f"{len(usable)} CPUs"
        )
    cores = physical_cores(usable, root)
    most = max(map(len, cores))
    order = [core[place] for place in range(most) for core in cores if place < len(core)]
    chosen = tuple(order[thread % len(order)] for thread in range(threads))
    rest = (cpu for core in cores if not set(core) & set(chosen) for cpu in core)
    return chosen, tuple(sorted(rest))


@contextmanager
def pinned(cpus: Sequence[int]) -> Iterator[str | None]:
    """Pins every thread of this process inside, so that none wanders between caches.

    The calling thread goes to the first CPU and the others, in the order in which they were
    started, to the ones after it, around and around: every pool that has a thread less than there
    are CPUs is spread over all but the first, whichever library it belongs to. Threads that start
    inside are not spread: let a program run once before. Afterwards every thread may run where it
    was allowed to before, and one that started inside where the calling one was.

    Args:
        cpus: Logical CPUs, as :func:`timing_cpus` chooses them.

    Yields:
        None, or why threads could not be pinned; they then run where the system puts them.

    Raises:
        InvalidValueError: no CPU is given.
    """
    if not cpus:
        raise InvalidValueError("threads cannot be pinned to no CPU at all")
    caller = os.sched_getaffinity(0)
    before: dict[int, set[int]] = {}
    try:
        yield _pin(cpus, before)
    finally:
        for thread in _threads():
            _allow(thread, before.get(thread, caller))


@contextmanager
def confined(processes: Sequence[int], cpus: Sequence[int]) -> Iterator[None]:
    """Keeps other processes of this user on ``cpus`` inside.

    Processes and threads that have ended, or may not be moved, are left alone.

    Args:
        processes: Their process ids.
        cpus: Logical CPUs.
    """
    before: dict[int, set[int]] = {}
    for process in processes:
        for thread in _threads(process):
            try:
                before[thread] = os.sched_getaffinity(thread)
            except OSError:  # it has ended
                continue
            _allow(thread, set(cpus))
    try:
        yield
    finally:
        widest = set[int]().union(*before.values())
        for process in processes:
            for thread in _threads(process):
                _allow(thread, before.get(thread, widest))


def quiet_neighbour_matters(cpu: int, other: int, seconds: float = 0.02) -> bool:
    """Return whether work on CPU ``other`` slows down CPU ``cpu``, as between threads of one core.

    Virtual machines need not say which CPUs share a core, so it is tried: the rate of
    multiply-adds on one CPU, with the other idle and busy.

    Args:
        cpu: Where programs are timed.
        other: Where something else would run meanwhile.
        seconds: About how long to try; five times as long if there seems to be an effect. Both
            CPUs are busy then.

    Returns:
        True also where it cannot be found out: the two cannot be pinned, or other processes kept
        them from running at the same time.

    Raises:
        InvalidValueError: the two are one CPU, or the time is not in (0, 60].
    """
    if cpu == other or not 0 < seconds <= 60:
        raise InvalidValueError(
            f"two CPUs and up to 60 seconds are needed, not CPUs {cpu} and {other}, {seconds} s"
        )
    alone = beside = 0.0
    for _ in range(_TRIES):
        try:
            rates = _native.neighbour_rates(cpu, other, seconds)
        except RuntimeError:
            return True
        alone, beside = max(alone, rates[0]), max(beside, rates[1])
        if beside >= _SHARED_BELOW * alone:
            return False
    return True


def _pin(cpus: Sequence[int], before: dict[int, set[int]]) -> str | None:
    """Pins the threads there are and notes where they were allowed to run."""
    # In Linux the first thread has the number of the process, others the next free ones: ascending
    # numbers are the order of their start until numbers wrap around.
    caller = threading.get_native_id()
    others = sorted(thread for thread in _threads() if thread != caller)
    after = list(cpus[1:]) or list(cpus)
    places = {caller: cpus[0]}
    places.update((thread, after[i % len(after)]) for i, thread in enumerate(others))
    failures = set()
    for thread, cpu in places.items():
        try:
            before[thread] = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, {cpu})
        except ProcessLookupError:
            continue  # it has ended
        except OSError as error:
            failures.add(f"cannot pin a thread to CPU {cpu}: {error.strerror}")
    return "; ".join(sorted(failures)) or None


def _allow(thread: int, cpus: set[int]) -> None:
    try:
        os.sched_setaffinity(thread, cpus)
    except OSError:
        # It has ended, or the container lost the CPUs: the system has moved it then.
        return


def _threads(process: int | str = "self") -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{process}/task")]
    except FileNotFoundError:  # it has ended
        return []

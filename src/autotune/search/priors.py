"""Priors from recorded times of a parameter space on other devices: ranks, and seeds.

Pure functions over arrays: any strategy over parameters can begin with :func:`ranked_seeds`, or
prefer what :func:`mean_ranks` prefers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError

__all__ = ["mean_ranks", "ranked_seeds"]


def mean_ranks(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean rank of each configuration on other devices; lower is better.

    On each device a configuration has the share of measured ones that are faster, so that devices
    count alike whatever their units, speed and spread. Failures are slower than all else.

    Args:
        times: Shape [devices, n], in any unit; infinity for a failure, NaN where a configuration
            was not measured.

    Returns:
        The mean over the devices that measured it, [n], in [0, 1]; NaN where none did.

    Raises:
        InvalidValueError: the array is not of two dimensions, or has a time that is not positive.
    """
    if times.ndim != 2:
        raise InvalidValueError(f"times are an array [devices, n], not {list(times.shape)}")
    if (times <= 0).any():
        raise InvalidValueError(f"times are positive, not {times[times <= 0][0]}")
    total, measured = np.zeros(times.shape[1]), np.zeros(times.shape[1])
    for row in times:
        known = ~np.isnan(row)
        own = row[known]
        if not len(own):
            continue
        faster = np.searchsorted(np.sort(own), own) / len(own)
        total[known] += np.where(np.isinf(own), 1.0, faster)
        measured[known] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(total / np.where(measured, measured, np.nan))


def ranked_seeds(
    configurations: NDArray[np.int64],
    times: NDArray[np.float64],
    most: int,
    *,
    spread: int = 1,
) -> NDArray[np.int64]:
    """Configurations to try first on a new device, given what they took on others.

    They come in the order of :func:`mean_ranks`, ties in the order given, but for those that
    differ from an earlier seed in at most ``spread`` parameters: what is good on all devices is
    often one configuration in many guises, and on a new device they are good or bad together.
    Where too few are left, the ones passed over follow, the best first. Failures on every device
    that measured them are never seeds.

    Args:
        configurations: Shape [n, params]; equal numbers are equal values.
        times: Shape [devices, n], as of :func:`mean_ranks`.
        most: How many seeds, at most.
        spread: In how many parameters two seeds differ without being another.

    Returns:
        Positions of the seeds among the configurations, the best first; [at most ``most``].

    Raises:
        InvalidValueError: the shapes do not match, a number is negative, or as of
            :func:`mean_ranks`.
    """
    if configurations.ndim != 2 or times.shape[1:] != configurations.shape[:1]:
        raise InvalidValueError(
            f"configurations [n, params] have times [devices, n], not "
            f"{list(configurations.shape)} and {list(times.shape)}"
        )
    if most < 0 or spread < 0:
        raise InvalidValueError(f"{most} seeds that differ in {spread} parameters")
    ranks = mean_ranks(times)
    usable = np.flatnonzero(np.isfinite(times).any(axis=0))
    order = usable[np.argsort(ranks[usable], kind="stable")]
    chosen: list[int] = []
    passed: list[int] = []
    for position in order.tolist():
        if len(chosen) == most:
            break
        differing = (configurations[chosen] != configurations[position]).sum(axis=1)
        (passed if (differing <= spread).any() else chosen).append(position)
    return np.array([*chosen, *passed][:most], dtype=np.int64)

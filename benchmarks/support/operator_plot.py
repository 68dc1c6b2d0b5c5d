"""The roofline of `operators.py`, by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from peak import MEMORY as IN_MEMORY

from support.operator_report import OURS, Measured
from support.operator_rows import CONVOLUTION, FUSED, LARGE, MEMORY, PRODUCT

# What makes two runs draw the same file, and text of a page searchable.
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "operators", "font.size": 9.0}
_COLOURS = {
    PRODUCT: "tab:blue",
    CONVOLUTION: "tab:orange",
    MEMORY: "tab:green",
    LARGE: "tab:olive",
    FUSED: "tab:purple",
}
_WIDTH, _HEIGHT = 7.5, 4.5


def save_plot(
    path: Path, measured: Sequence[Measured], rates: Mapping[int, Sequence[Mapping[str, Any]]]
) -> None:
    """A picture for each number of threads, beside each other.

    Args:
        path: A file whose ending names the format.
        measured: The rows; those of float32 with products are drawn.
        rates: The ceilings by number of threads, as `peak.py` writes them.
    """
    with matplotlib.style.context("default"), matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, _HEIGHT * len(rates)), layout="constrained")
        pictures = figure.subplots(len(rates), squeeze=False)[:, 0]
        for axes, (threads, found) in zip(pictures, rates.items(), strict=True):
            rows = [one for one in measured if one.threads == threads]
            _draw(axes, rows, found)
            axes.set_title("1 thread" if threads == 1 else f"{threads} threads")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw(axes: Axes, measured: Sequence[Measured], rates: Sequence[Mapping[str, Any]]) -> None:
    points = [(one, *at) for one in measured if (at := _place(one)) is not None]
    peak = next(rate["rate"] for rate in rates if rate["what"] == "float32")
    reads = {rate["where"]: rate["rate"] for rate in rates if rate["what"] == "read"}
    ridge = peak / reads[IN_MEMORY]
    low = min([1 / 8, *(x for _, x, _ in points)]) / 2
    high = max([2 * ridge, *(x for _, x, _ in points)]) * 2
    for where, bandwidth in reads.items():
        bend = peak / bandwidth
        axes.plot([low, bend], [low * bandwidth / 1e9, peak / 1e9], color="black", linewidth=0.8)
        axes.annotate(where, (low, low * bandwidth / 1e9), fontsize=7, va="bottom")
    axes.plot([peak / max(reads.values()), high], [peak / 1e9] * 2, color="black", linewidth=1.0)
    axes.annotate("float32", (high, peak / 1e9), ha="right", va="bottom", fontsize=7)
    for family, colour in _COLOURS.items():
        own = [(x, y) for one, x, y in points if one.row.family == family]
        if own:
            axes.plot(*zip(*own, strict=True), "o", color=colour, markersize=4, label=family)
    for one, x, y in points:
        axes.annotate(one.row.group, (x, y), (3, 2), textcoords="offset points", fontsize=6)
    axes.set(xlabel="flop of products per byte of arrays", ylabel="Gflop/s", xlim=(low, high))
    axes.set_xscale("log")
    axes.set_yscale("log")
    if points:
        axes.legend(loc="lower right")


def _place(one: Measured) -> tuple[float, float] | None:
    """flop per byte and Gflop/s of ours; None where it has no products, or no figure."""
    latency = one.latency(OURS)
    if latency is None or not one.row.flop or one.row.dtype != "float32":
        return None
    return one.row.flop / (one.read + one.written), one.row.flop / latency / 1e9

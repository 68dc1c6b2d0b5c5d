"""An explanation as tables, and its slopes as a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

import numpy as np

from autotune.models.explanation import Explanation, FeatureSlope, Move, ParamSlope
from autotune.report.table import Table

__all__ = ["explanation_svg", "explanation_tables"]

_BAR, _LABEL, _LINE = 320, 300, 22
_COLOURS = {True: "#2c7fb8", False: "#d95f0e"}


def explanation_tables(explanation: Explanation, most: int) -> list[Table]:
    """Slopes by parameter and by feature, steps, and limits, ``most`` rows of each at most."""
    tables = [
        Table(
            "By parameter: predicted change of latency for each doubling",
            ("parameter", "value>", "change>"),
            tuple(
                (p.name, str(p.value), _change(p.per_octave)) for p in explanation.params[:most]
            ),
        )
    ]
    if explanation.features:
        rows = [
            (feature.name, f"{feature.value:.4g}", _change(feature.per_octave))
            for feature in explanation.features[:most]
        ]
        title = "By feature: predicted change of latency for each doubling"
        tables.append(Table(title, ("feature", "value>", "change>"), tuple(rows)))
    tables.append(
        Table(
            "Legal single steps, best first",
            ("step", "predicted speed>"),
            tuple((_step(move), f"{move.gain:.3f}x") for move in explanation.moves[:most]),
            () if explanation.moves else ("there are none",),
        )
    )
    if explanation.blocked:
        blocked = [
            (_step(move), f"{move.gain:.3f}x", "; ".join(move.blocked_by))
            for move in explanation.blocked[:most]
        ]
        heads = ("step", "predicted speed>", "forbidden by")
        tables.append(Table("Faster steps that are not legal", heads, tuple(blocked)))
    if explanation.limits:
        tables.append(_limits(explanation, most))
    return tables


def _limits(explanation: Explanation, most: int) -> Table:
    rows = [
        (
            limit.text,
            str(limit.value),
            ("at most " if limit.is_upper else "at least ") + str(limit.limit),
            "yes" if limit.binds else "no",
            limit.source,
        )
        for limit in explanation.limits[:most]
    ]
    return Table("Limits", ("limit", "value>", "bound", "binds", "because of"), tuple(rows))


def _step(move: Move) -> str:
    return ", ".join(f"{name} {old} -> {new}" for name, old, new in move.changes)


def _change(factor: float) -> str:
    return f"{100 * (factor - 1):+.1f} %"


def explanation_svg(explanation: Explanation, title: str, most: int = 16) -> str:
    """A drawing in SVG: a bar for each slope, to the left where a doubling is faster."""
    panels: list[tuple[str, Sequence[ParamSlope | FeatureSlope]]] = [
        ("by parameter", explanation.params[:most])
    ]
    if explanation.features:
        panels.append(("by feature", explanation.features[:most]))
    height = _LINE * (2 + sum(2 + len(slopes) for _, slopes in panels))
    width = _LABEL + _BAR + 90
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(10, _LINE, f"{title}: change of predicted latency for each doubling"),
    ]
    top = 2 * _LINE
    for heading, slopes in panels:
        parts.append(_text(10, top + _LINE - 6, heading))
        top += _LINE
        parts += _bars(slopes, top)
        top += _LINE * (len(slopes) + 1)
    return "\n".join([*parts, "</svg>\n"])


def _bars(slopes: Sequence[ParamSlope | FeatureSlope], top: int) -> list[str]:
    logs = [float(np.log2(slope.per_octave)) for slope in slopes]
    largest = max([1e-9, *(abs(log) for log in logs)])
    middle = _LABEL + _BAR / 2
    parts = []
    for place, (slope, log) in enumerate(zip(slopes, logs, strict=True)):
        y = top + place * _LINE
        length = abs(log) / largest * _BAR / 2
        x = middle - length if log < 0 else middle
        parts.append(_text(_LABEL - 8, y + 15, slope.name, "end"))
        parts.append(
            f'<rect x="{x:.1f}" y="{y + 3}" width="{length:.1f}" height="{_LINE - 8}" '
            f'fill="{_COLOURS[log < 0]}"/>'
        )
        parts.append(_text(_LABEL + _BAR + 8, y + 15, _change(slope.per_octave)))
    end = top + len(slopes) * _LINE
    line = f'<line x1="{middle}" y1="{top}" x2="{middle}" y2="{end}" stroke="black"/>'
    return [*parts, line]


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'

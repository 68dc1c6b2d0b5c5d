"""Numbers as people read them."""

from __future__ import annotations

__all__ = ["percent", "rate", "ratio", "seconds", "shortened", "size"]

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_RATES = ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def seconds(value: float | None) -> str:
    """A duration in seconds with three significant digits: ``"1.28 ms"``; ``"-"`` for None."""
    return "-" if value is None else _scaled(value, _TIMES)


def rate(flop: int, latency: float | None) -> str:
    """Arithmetic rate of ``flop`` operations in ``latency`` seconds: ``"210 GFLOP/s"``."""
    return "-" if not latency or not flop else _scaled(flop / latency, _RATES)


def size(value: float) -> str:
    """A number of bytes: ``"32 KiB"``."""
    return _scaled(value, _SIZES)


def ratio(value: float | None) -> str:
    """A factor: ``"2.31x"``, ``"28.2x"``, ``"733x"``; ``"-"`` for None."""
    return "-" if value is None else f"{value:.{_digits(value)}f}x"


def percent(part: float, whole: float) -> str:
    """A share in whole percent: ``"25 %"``."""
    return f"{100 * part / whole:.0f} %" if whole > 0 else "-"


def shortened(name: str, width: int = 56) -> str:
    """A name of at most ``width`` characters: its end, which tells it from others, is kept."""
    tail = (width - 3) // 3
    return name if len(name) <= width else f"{name[: width - 3 - tail]}...{name[-tail:]}"


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    scale, unit = next(((scale, unit) for scale, unit in units if abs(value) >= scale), units[-1])
    scaled = value / scale
    return f"{scaled:.{_digits(scaled)}f} {unit}"


def _digits(value: float) -> int:
    """Decimals that make three significant digits of a value of at least 1."""
    return 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2

"""Felix (ASPLOS'24) for autotune: gradient descent on relaxed schedules."""

from __future__ import annotations

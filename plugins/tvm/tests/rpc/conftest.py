"""Tests of runner ``rpc``; TVM's tracker fails without a word to its caller without these two."""

from __future__ import annotations

import cloudpickle  # noqa: F401
import tornado  # noqa: F401

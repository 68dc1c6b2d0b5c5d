"""Servers for the tests of runner ``rpc``."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture(scope="session", autouse=True)
def tracker_can_run() -> None:
    """TVM's tracker fails without a word to its caller where one of these is missing."""
    missing = [name for name in ("tornado", "cloudpickle") if not importlib.util.find_spec(name)]
    assert not missing, f"TVM's RPC tracker needs {', '.join(missing)}: make the environment anew"

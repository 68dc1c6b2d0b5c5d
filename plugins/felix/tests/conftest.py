"""Nothing here can be tested without torch, on which the plugin depends."""

from __future__ import annotations

import importlib.util

from hypothesis import settings

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]

# Machines may be busy; what is asserted are facts, not times.
settings.register_profile("felix", deadline=None)
settings.load_profile("felix")

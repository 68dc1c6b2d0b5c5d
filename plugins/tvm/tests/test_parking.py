"""After a parallel program the threads of TVM's pool can be made to keep still."""

from __future__ import annotations

import pytest
from thread_programs import seconds_spun


def spun(act: str, spins: str) -> float:
    """Seconds that the other threads compute while the main thread sleeps."""
    return seconds_spun(
        act,
        "autotune_tvm.backend:TVMBackend",
        TVM_NUM_THREADS="2",
        TVM_BIND_THREADS="0",
        TVM_THREAD_POOL_SPIN_COUNT=spins,
    )


@pytest.mark.needs("2 CPUs")
def test_nothing_runs_after_parking() -> None:
    assert spun("go on", spins="2000000000") > 0
    assert spun("park", spins="100000") == 0.0  # 20 milliseconds of a CPU

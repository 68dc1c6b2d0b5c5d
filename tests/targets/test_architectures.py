from __future__ import annotations

import pytest
from attrs import evolve

from autotune.targets import compute_capability, most_shared_memory, preset

KIB = 1024


@pytest.mark.parametrize(
    ("processor", "capability"),
    [("sm_80", 80), ("sm_90a", 90), ("sm_100", 100), ("x86-64", 0), ("sm_", 0)],
)
def test_capabilities(processor: str, capability: int) -> None:
    assert compute_capability(processor) == capability


@pytest.mark.parametrize(
    ("name", "most"), [("a100", 163), ("h100", 227), ("orin", 163), ("t4", 48), ("v100", 48)]
)
def test_what_a_block_may_ask_for(name: str, most: int) -> None:
    """Expect the table of CUDA's guide; before sm_80 nothing is asked for."""
    target = preset(name)
    assert most_shared_memory(target) == most * KIB
    unknown = evolve(target, shared_memory_per_multiprocessor=0)
    assert most_shared_memory(unknown) == target.shared_memory_bytes

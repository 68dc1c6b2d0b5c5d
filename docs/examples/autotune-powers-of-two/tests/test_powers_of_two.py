import pytest
from autotune_powers_of_two.space import PowersOfTwo

from autotune import workloads
from autotune.sketches import STEP_TYPES
from autotune.spaces import ScheduleLimits, SpaceContext
from autotune.targets import preset
from autotune.testing.search_space_suite import SearchSpaceSuite


class TestPowersOfTwo(SearchSpaceSuite):
    @pytest.fixture(params=[64, 14])
    def search_space_factory(self, request):
        workload = workloads.gemm(m=request.param, n=64, k=64)
        limits = ScheduleLimits(frozenset(STEP_TYPES), 1 << 16, 512, "test")
        context = SpaceContext(workload=workload, target=preset("avx512-8core"), limits=limits)
        return lambda: PowersOfTwo(context)

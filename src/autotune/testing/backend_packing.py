"""Promises of backends that pack constants ahead: a part of the suite of backends."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.backends import Backend, bind_copies
from autotune.ir.workloads import Workload, random_inputs
from autotune.sketches import Candidate, prepacked_operands
from autotune.targets import Target
from autotune.testing.programs import request_for, sample_candidates

__all__ = ["PackingSuite"]


class PackingSuite:
    """Promises of programs whose constants are packed when they are bound.

    For backends whose limits name the step ``prepack``.
    """

    packs_ahead: bool = True
    """Whether programs are given what ``prepack`` packs; otherwise they pack it in every call."""

    @pytest.fixture
    def packing_candidate(self, backend: Backend, target: Target, workload: Workload) -> Candidate:
        """A candidate whose program is given its last input packed."""
        if not self.packs_ahead or "prepack" not in backend.limits(target).steps:
            pytest.skip("nothing is packed ahead")  # noqa: TID251
        constant = workload.with_constants(workload.inputs[-1].name)
        drawn = sample_candidates(backend, constant, target, each=2)
        return next(candidate for candidate in drawn if prepacked_operands(candidate))

    def test_bindings_to_equal_constants_share_what_is_packed(
        self, backend: Backend, target: Target, packing_candidate: Candidate
    ) -> None:
        executable = backend.build(request_for(packing_candidate, target))
        workload = packing_candidate.sketch.workload
        inputs = list(random_inputs(workload, np.random.default_rng(0)).values())
        first, second = (bind_copies(executable, workload, inputs) for _ in range(2))
        assert first.copies()
        for one, other in zip(first.copies(), second.copies(), strict=True):
            assert one is other

    def test_what_is_timed_does_not_pack(
        self, backend: Backend, target: Target, packing_candidate: Candidate
    ) -> None:
        """A call reads the packed constant only: changes of the constant itself are not seen."""
        executable = backend.build(request_for(packing_candidate, target))
        workload = packing_candidate.sketch.workload
        inputs = random_inputs(workload, np.random.default_rng(0))
        call = bind_copies(executable, workload, list(inputs.values()))
        call.run()
        before = call.outputs()
        call.copies()[0][...] = 0
        call.run()
        assert not np.array_equal(before[0], call.outputs()[0])

"""Weights that schedules pack are packed once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.networks.apply import PREPACKED, scheduled_function
from autotune_tvm.networks.executable import RelaxNetwork
from autotune_tvm.networks.frontend import RelaxFrontend
from autotune_tvm.networks.graph import array_of
from autotune_tvm.networks.prepack import Packer
from autotune_tvm.networks.program import RelaxProgram
from autotune_tvm.printed import printed_functions
from relax_networks import const, network, op, two_layers, weights
from tvm import relax
from tvm_ffi import structural_equal

from autotune.backends import BuildRequest
from autotune.networks import LoadOptions
from autotune.sketches import Candidate
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target
from autotune.testing.programs import sample_candidates


def program_of(module: Any, target: Target) -> RelaxProgram:
    """A loaded network."""
    found = RelaxFrontend().load(module, None, LoadOptions(target, 1))
    assert isinstance(found, RelaxProgram)
    return found


def candidates_of(program: RelaxProgram, target: Target) -> dict[str, Candidate]:
    """A candidate of every sketch of the first task."""
    backend = TVMBackend()
    imported = backend.import_program(program.tasks[0].program)
    found = sample_candidates(backend, imported.workload, target)
    return {candidate.sketch.name: candidate for candidate in found}


def record_of(program: RelaxProgram, candidate: Candidate, target: Target) -> Record:
    """The record of a candidate for the first task."""
    text = TVMBackend().import_program(program.tasks[0].program).program
    key = MeasureKey(target.fingerprint, "tvm", "1", "1", 1, "warm-3")
    outcome, json = Outcome("ok", 1e-3, (1e-3,)), target.to_json()
    return Record("run", 0, candidate, key, json, "sketch-1", outcome, 0.0, program=text)


def built(program: RelaxProgram, candidate: Candidate, target: Target) -> RelaxNetwork:
    """The network with that candidate for its first task."""
    record = record_of(program, candidate, target)
    compiled = program.build({program.tasks[0].name: record}, target, 1)
    assert isinstance(compiled, RelaxNetwork)
    return compiled


@pytest.mark.parametrize("sketch", ["packed-root", "packed-root-rows", "packed-panel-outer"])
def test_weights_are_packed_when_the_network_is_built(sketch: str, target: Target) -> None:
    program = program_of(two_layers(), target)
    (task,) = program.tasks
    assert task.occurrences == 2
    network = built(program, candidates_of(program, target)[sketch], target)
    assert network.packed == {task.name: 1}
    x = weights(24, 24, seed=5)
    wanted = x
    for seed in (0, 1):
        wanted = np.maximum(wanted @ weights(24, 24, seed=seed), 0)
    np.testing.assert_allclose(network(x)[0], wanted, rtol=1e-4, atol=1e-4)


def test_corrections_of_signed_bytes_are_packed_with_the_weights(target: Target) -> None:
    """Another parameter, between that of the packed weights and the result."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, shape, np.int8) for shape in ((32, 24), (24, 48)))
    module = network(
        [(x.shape, "int8")],
        lambda emit, given: emit(op.matmul(given, const(w), out_dtype="int32")),
    )
    program = program_of(module, target)
    compiled = built(program, candidates_of(program, target)["packed-root"], target)
    assert compiled.packed == {program.tasks[0].name: 1}
    assert np.array_equal(compiled(x)[0], x.astype(np.int32) @ w)


def test_what_is_no_constant_is_packed_when_it_runs(target: Target) -> None:
    module = network([((24, 24), "float32")] * 2, lambda emit, x, y: emit(op.matmul(x, y)))
    program = program_of(module, target)
    candidates = candidates_of(program, target)
    assert "packed-panel" in candidates
    assert built(program, candidates["packed-root"], target).packed == {}


def test_a_schedule_that_packs_nothing_is_left_whole(target: Target) -> None:
    program = program_of(two_layers(), target)
    candidates = candidates_of(program, target)
    for sketch in ("direct", "plain-rows"):
        assert built(program, candidates[sketch], target).packed == {}


def test_what_is_constant_in_one_call_only_is_no_constant(target: Target) -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(op.matmul(x, const(weights(24, 24))))
        return emit(op.matmul(y, x))

    program = program_of(network([((24, 24), "float32")], body), target)
    (task,) = program.tasks
    workload = TVMBackend().import_program(task.program).workload
    assert task.occurrences == 2 and not any(tensor.constant for tensor in workload.inputs)
    candidate = candidates_of(program, target)["packed-root"]
    assert built(program, candidate, target).packed == {}


def test_a_network_runs_the_kernel_that_is_timed(target: Target) -> None:
    program = program_of(two_layers(), target)
    candidate = candidates_of(program, target)["packed-root"]
    imported = TVMBackend().import_program(program.tasks[0].program)
    request = BuildRequest(imported.workload, imported.program, candidate, target, 1)
    timed = printed_functions(request)
    function = scheduled_function(
        program.tasks[0].program, record_of(program, candidate, target), target, 1
    )
    assert list(timed.packers) == [1]
    assert structural_equal(function.attrs[PREPACKED]["1"], timed.packers[1])
    assert structural_equal(function.params, timed.kernel.params, map_free_vars=True)
    assert structural_equal(function.body, timed.kernel.body, map_free_vars=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_no_statement_writes_is_zero(dtype: str) -> None:
    packer = Packer(lambda operand, result: None, (((2, 4), dtype),), 1)
    (found,) = packer.packed(relax.const(np.ones((2, 4), np.float32)))
    assert str(found.value.dtype) == dtype
    assert not array_of(found).astype(np.float32).any()

"""Records become functions of a network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.networks.apply import apply_functions, default_function, scheduled_function
from autotune_tvm.networks.frontend import RelaxFrontend
from autotune_tvm.networks.program import RelaxProgram, build_module
from relax_networks import const, network, op, small_network, weights

from autotune.backends import BuildFailed, InvalidSchedule
from autotune.errors import AutotuneError
from autotune.networks import LoadOptions
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target
from autotune.testing.programs import sample_candidates


def program_of(module: Any, target: Target) -> RelaxProgram:
    """A loaded network."""
    found = RelaxFrontend().load(module, None, LoadOptions(target, 1))
    assert isinstance(found, RelaxProgram)
    return found


def product(rows: int) -> Any:
    """A network of one product of matrices."""
    return network(
        [((rows, 16), "float32")], lambda emit, x: emit(op.matmul(x, const(weights(16, 16))))
    )


def record_of(program: RelaxProgram, target: Target) -> Record:
    """A record of the first task, as a run on its network would store it."""
    imported = TVMBackend().import_program(program.tasks[0].program)
    candidate = sample_candidates(TVMBackend(), imported.workload, target)[0]
    key = MeasureKey(target.fingerprint, "tvm", "1", "1", 1, "warm-3")
    outcome = Outcome("ok", 1e-3, (1e-3,))
    text = imported.program
    return Record(
        "run", 0, candidate, key, target.to_json(), "sketch-1", outcome, 0.0, program=text
    )


def test_a_record_of_an_equal_function_with_other_names_is_applied(target: Target) -> None:
    shapes = [((16, 16), "float32")] * 2
    one = program_of(network(shapes, lambda emit, x, y: emit(op.matmul(x, y))), target)
    two = program_of(network(shapes, lambda emit, x, y: emit(op.matmul(y, x))), target)
    record = record_of(one, target)
    function = scheduled_function(two.tasks[0].program, record, target, 1)
    assert function.script() != two.tasks[0].program.script()
    x, y = weights(16, 16), weights(16, 16, seed=1)
    (found,) = two.build({two.tasks[0].name: record}, target, 1)(x, y)
    np.testing.assert_allclose(found, y @ x, rtol=1e-4, atol=1e-5)


def test_a_record_for_constant_weights_is_not_one_for_variable_ones(target: Target) -> None:
    shapes = [((16, 16), "float32")] * 2
    constant = program_of(product(16), target)
    variable = program_of(network(shapes, lambda emit, x, y: emit(op.matmul(x, y))), target)
    for one, other in ((constant, variable), (variable, constant)):
        with pytest.raises(InvalidSchedule, match="which is not this function"):
            scheduled_function(other.tasks[0].program, record_of(one, target), target, 1)


def test_a_record_of_another_function_is_refused_by_name(target: Target) -> None:
    one, two = program_of(product(16), target), program_of(product(8), target)
    with pytest.raises(InvalidSchedule, match=f"task {two.tasks[0].name!r}: record run/0"):
        two.build({two.tasks[0].name: record_of(one, target)}, target, 1)


def test_what_nobody_tuned_has_the_default_schedule_or_none(target: Target) -> None:
    plain, softmax = (
        program_of(network([((32, 64), "float32")], body), target)
        for body in (lambda emit, x: emit(op.nn.relu(x)), lambda emit, x: emit(op.nn.softmax(x)))
    )
    before = softmax.tasks[0].program
    assert "parallel" in default_function(before, target, 2).script()
    assert "parallel" not in default_function(plain.tasks[0].program, target, 2).script()


def test_functions_are_put_in_by_name(target: Target) -> None:
    program = program_of(small_network(), target)
    with pytest.raises(AutotuneError, match="no compiled function 'main'"):
        apply_functions(program.module, {"main": program.tasks[0].program})
    with pytest.raises(AutotuneError, match="no compiled function 'none'"):
        apply_functions(program.module, {"none": program.tasks[0].program})


def test_a_function_that_cannot_be_compiled_is_named(target: Target) -> None:
    """LLVM refuses a comparison of booleans where the pass that rewrites it is left out."""

    def body(emit: Any, x: Any) -> Any:
        positive = emit(op.greater(x, const(weights(4))))
        return emit(op.equal(positive, emit(op.logical_not(positive))))

    module = network([((3, 4), "float32")], body)
    options = LoadOptions(target, 1, {"boolean_operators": None})
    program = RelaxFrontend().load(module, None, options)
    assert isinstance(program, RelaxProgram)
    with pytest.raises(BuildFailed, match=f"task {program.tasks[0].name!r}: .*FCmp"):
        program.build({}, target, 1)
    assert build_module(program_of(module, target).module, target, 1)

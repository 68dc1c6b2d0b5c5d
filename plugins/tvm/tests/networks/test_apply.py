"""Records become functions of a module."""

from __future__ import annotations

from typing import Any

import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.networks.apply import (
    PREPACKED,
    apply_functions,
    default_function,
    scheduled_function,
)
from autotune_tvm.networks.apply_records import unscheduled
from autotune_tvm.printed import printed_functions
from relax_networks import const, network, op, small_network, two_layers, weights
from relax_records import Cut, cuts, fused
from tvm_ffi import structural_equal

from autotune.backends import BuildRequest, InvalidSchedule
from autotune.errors import AutotuneError
from autotune.targets import Target


def product(rows: int, target: Target) -> Cut:
    """A product with a constant matrix."""

    def body(emit: Any, x: Any) -> Any:
        return emit(op.matmul(x, const(weights(16, 16))))

    (cut,) = cuts(fused(network([((rows, 16), "float32")], body)), "tvm", target)
    return cut


def test_a_record_for_constant_weights_is_not_one_for_variable_ones(target: Target) -> None:
    shapes = [((16, 16), "float32")] * 2
    both = fused(network(shapes, lambda emit, x, y: emit(op.matmul(x, y))))
    (variable,) = cuts(both, "tvm", target)
    constant = product(16, target)
    for one, other in ((constant, variable), (variable, constant)):
        with pytest.raises(InvalidSchedule, match=r"record run/0 .* which is not this function"):
            scheduled_function(other.function, one.record(), target, 1)


def test_a_record_of_another_function_is_refused(target: Target) -> None:
    one, two = product(16, target), product(8, target)
    with pytest.raises(InvalidSchedule, match=r"record run/0 .* which is not this function"):
        scheduled_function(two.function, one.record(), target, 1)


def test_the_kernel_that_is_timed_is_the_one_that_runs(target: Target) -> None:
    (cut,) = cuts(fused(two_layers()), "tvm", target.with_cores(1))
    candidate = cut.candidates()["packed-root"]
    imported = TVMBackend().import_program(cut.function)
    request = BuildRequest(imported.workload, imported.program, candidate, cut.target, 1)
    timed = printed_functions(request)
    function = scheduled_function(cut.function, cut.record(candidate), cut.target, 1)
    assert list(timed.packers) == [1]
    assert structural_equal(function.attrs[PREPACKED]["1"], timed.packers[1])
    assert structural_equal(function.params, timed.kernel.params, map_free_vars=True)
    assert structural_equal(function.body, timed.kernel.body, map_free_vars=True)


def test_what_nobody_tuned_has_the_default_schedule_or_none(target: Target) -> None:
    plain, softmax = (
        cuts(fused(network([((32, 64), "float32")], body)), "tvm", target)[0].function
        for body in (lambda emit, x: emit(op.nn.relu(x)), lambda emit, x: emit(op.nn.softmax(x)))
    )
    assert "parallel" in default_function(softmax, target, 2).script()
    assert "parallel" not in default_function(plain, target, 2).script()


def test_functions_are_put_in_by_name() -> None:
    module = fused(small_network())
    function = next(iter(unscheduled(module).values()))
    for name in ("main", "none"):
        with pytest.raises(AutotuneError, match=f"no compiled function '{name}'"):
            apply_functions(module, {name: function})

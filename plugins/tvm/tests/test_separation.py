"""Blocks that reduce to several tensors at once."""

from __future__ import annotations

from typing import Any

import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.importer import argument_names, import_module, text_of
from tvm import te, tirx, topi
from tvm_ffi import structural_equal
from tvm_programs import check_imported

from autotune.backends import BuildRequest
from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import Binary, Load
from autotune.targets import Target


def data(shape: tuple[int, ...], name: str = "X") -> Any:
    return te.placeholder(shape, "float32", name)


def pair(combine: Any, *identities: float) -> Any:
    """A function of 6 results, each by reducing 32 elements and their squares together."""
    x = data((6, 32))
    reducer = te.comm_reducer(
        combine, lambda *types: tuple(map(tirx.const, identities, types)), name="both"
    )
    k = te.reduce_axis((0, 32), "k")
    first, second = te.compute(
        (6,), lambda i: reducer((x[i, k], x[i, k] * x[i, k]), axis=k), name="R"
    )
    return te.create_prim_func([x, te.compute((6,), lambda i: first[i] - second[i], name="Y")])


def normalised() -> dict[str, Any]:
    x, scale, shift = data((2, 4, 3, 5)), data((4,), "G"), data((4,), "B")
    return {
        "instance": [x, scale, shift, topi.nn.instance_norm(x, scale, shift, 1, [2, 3], 1e-5)],
        "group": [x, scale, shift, topi.nn.group_norm(x, scale, shift, 2, 1, [2, 3], 1e-5)],
    }


def programs() -> dict[str, Any]:
    found = {name: te.create_prim_func(parts) for name, parts in normalised().items()}
    found["sum and maximum"] = pair(lambda a, b: (a[0] + b[0], te.max(a[1], b[1])), 0.0, -1e30)
    return found


@pytest.mark.parametrize("name", ["instance", "group"])
def test_the_program_stays_as_it_came(name: str, backend: TVMBackend, target: Target) -> None:
    """The stored and the untuned one are as before; only the workload has a stage for each sum."""
    function = programs()[name]
    workload = check_imported(function)
    sums = [stage for stage in workload.stages if stage.combiner == "add"]
    assert [isinstance(stage.body, (Load, Binary)) for stage in sums] == [True, True]
    _, module = import_module(function)
    assert structural_equal(module["main"], function)
    untuned = BuildRequest(workload, text_of(module), None, target, 1)
    assert str(backend.show(untuned)).count('T.sblock("X_red_temp') == 1
    assert argument_names(module)[0] == "X"


def test_identities_of_each_are_checked() -> None:
    with pytest.raises(UnsupportedWorkload, match="not the identity of 'max'"):
        import_module(programs()["sum and maximum"])


def test_results_of_one_that_another_uses_are_refused() -> None:
    """The second adds what the first has become."""
    function = pair(lambda a, b: (a[0] + b[0], a[1] + (a[0] + b[0])), 0.0, 0.0)
    expected = r"block 'R': what it reduces to 'R_v1' depends on 'R_v0'.*does not select"
    with pytest.raises(UnsupportedWorkload, match=expected):
        import_module(function)

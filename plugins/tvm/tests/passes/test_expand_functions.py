"""Elementary functions become arithmetic: in vectors, in scalars, in whole programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm.compiler import generate_code, lower_module, module_digest, tir_pipeline
from autotune_tvm.passes.expand_functions import expand_functions
from needs import skip_here
from single_precision import ARGUMENTS, check_errors, exact
from tvm import te, tirx
from tvm_programs import machine_code, one_of_each, samples

from autotune.ir.workloads import softmax
from autotune.lower.elementary import ELEMENTARY
from autotune.targets import Target, detect_cpu

LIBRARY = re.compile(r"\b(?:exp|log|tanh|erf|pow)f?\b@?")
_SCALING = ("avx512f", "avx512vl")
CPUS = {
    "fused": Target(kind="cpu", name="avx2", processor="x86-64-v3", features=("avx2", "fma")),
    "plain": Target(kind="cpu", name="sse", processor="x86-64"),
    "scaling": Target(kind="cpu", name="avx512", processor="x86-64-v4", features=_SCALING),
}


def program(function: Callable[..., Any], n: int, lanes: int, dtype: str = "float32") -> Any:
    """A module with a loop over ``n`` elements, in vectors if ``lanes`` are several."""
    source = te.placeholder((n,), dtype, "X")
    result = te.compute((n,), lambda i: function(source[i]), "Y")
    made = te.create_prim_func([source, result]).with_attr("global_symbol", "main")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": made}))
    if lanes > 1:
        (loop,) = schedule.get_loops(schedule.get_sblock("Y"))
        _, inner = schedule.split(loop, [None, lanes])
        schedule.vectorize(inner)
    return schedule.mod


def results(built: Any, values: Any) -> Any:
    """Call a compiled program with values."""
    out = tvm.runtime.tensor(np.empty_like(values))
    built["main"](tvm.runtime.tensor(values), out)
    return out.numpy()


@lru_cache
def compiled(function: str, n: int, lanes: int, cpu: str) -> tuple[Any, str]:
    """A program, and its assembly."""
    module = program(getattr(tirx, function), n, lanes)
    target = CPUS[cpu]
    built, _ = generate_code(lower_module(module, target, 1), target, 1)
    return built, str(built.inspect_source("s"))


def skip_unless_here(cpu: str) -> None:
    if not set(CPUS[cpu].features) <= set(detect_cpu().features):
        skip_here(f"it has no {', '.join(CPUS[cpu].features)}")


# How large the errors of the forms are is tried in the core; here, that they are written right.
@pytest.mark.parametrize(
    ("function", "cpu", "lanes"),
    [
        *((name, "plain", 16) for name in ELEMENTARY),
        *(("exp", "fused", 16), ("exp", "scaling", 16), ("exp", "plain", 1)),
    ],
)
def test_errors_over_all_arguments(function: str, cpu: str, lanes: int) -> None:
    skip_unless_here(cpu)
    values = np.resize(ARGUMENTS, -(-len(ARGUMENTS) // 16) * 16)
    built, text = compiled(function, len(values), lanes, cpu)
    check_errors(function, values, results(built, values))
    assert not LIBRARY.search(text) and f"autotune_{function}" not in text


@pytest.mark.parametrize("lanes", [4, 12, 32])
def test_vectors_are_scaled_by_an_instruction_whole_or_in_parts(lanes: int) -> None:
    skip_unless_here("scaling")
    values = np.resize(ARGUMENTS, 192 * (len(ARGUMENTS) // 192))
    built, text = compiled("exp", len(values), lanes, "scaling")
    check_errors("exp", values, results(built, values))
    # Three parts have no pairs.
    assert ("vscalefps" in text) == (lanes != 12)
    assert "vscalefps" not in compiled("exp", len(values), lanes, "fused")[1]


@pytest.mark.parametrize("exponent", [2, 3])
def test_small_powers_become_products(exponent: int) -> None:
    values = np.array([-2.5, -0.0, 0.3, 1e-30, 1e20, np.inf, -np.inf, np.nan] * 2, np.float32)
    module = program(lambda x: tirx.power(x, tirx.const(exponent, "float32")), 16, 16)
    built, _ = generate_code(lower_module(module, CPUS["plain"], 1), CPUS["plain"], 1)
    assert not LIBRARY.search(str(built.inspect_source("s")))
    with np.errstate(over="ignore", under="ignore"):
        expected = np.power(values, np.float32(exponent))
    np.testing.assert_allclose(results(built, values), expected, rtol=2e-7)


def test_other_powers_and_double_precision_stay_calls() -> None:
    for exponent in (0.5, 4.0, -1.0):
        module = program(lambda x, e=exponent: tirx.power(x, tirx.const(e, "float32")), 16, 16)
        assert "T.pow(" in expand_functions(module).script()
    module = program(tirx.exp, 16, 16, "float64")
    assert "T.exp(" in expand_functions(module).script()


def test_half_precision_is_computed_in_single() -> None:
    values = np.linspace(-8, 8, 64).astype(np.float16)
    module = program(tirx.exp, 64, 16, "float16")
    assert "T.exp(" not in expand_functions(module).script()
    built, _ = generate_code(lower_module(module, CPUS["plain"], 1), CPUS["plain"], 1)
    expected = np.exp(values.astype(np.float64)).astype(np.float16)
    np.testing.assert_array_equal(results(built, values), expected)


def test_functions_of_functions_are_computed_once_each() -> None:
    """Operands that a form uses several times are not computed as often: that would take hours."""
    values = np.linspace(-8, 8, 64).astype(np.float32)
    module = program(lambda x: tirx.log(tirx.exp(tirx.tanh(tirx.erf(tirx.exp(x))))), 64, 16)
    lowered = lower_module(module, CPUS["plain"], 1)
    built, _ = generate_code(lowered, CPUS["plain"], 1)
    expected = np.tanh(exact("erf", exact("exp", values).astype(np.float32)))
    np.testing.assert_allclose(results(built, values), expected, rtol=1e-5, atol=1e-7)


def test_functions_of_one_module_may_use_the_same_forms() -> None:
    values = np.linspace(-8, 8, 64).astype(np.float32)
    module = program(tirx.exp, 64, 16)
    other = program(lambda x: tirx.exp(x) + 1.0, 64, 16)["main"].with_attr(
        "global_symbol", "other"
    )
    target = CPUS["plain"]
    both = tvm.IRModule({"main": module["main"], "other": other})
    built, _ = generate_code(lower_module(both, target, 1), target, 1)
    out = tvm.runtime.tensor(np.empty_like(values))
    built["other"](tvm.runtime.tensor(values), out)
    np.testing.assert_allclose(out.numpy(), results(built, values) + 1, rtol=1e-6)


def test_equal_programs_have_equal_digests() -> None:
    target = CPUS["plain"]
    one, other = (lower_module(program(tirx.erf, 64, 16), target, 1) for _ in range(2))
    assert module_digest(one) == module_digest(other)
    assert module_digest(one) != module_digest(lower_module(program(tirx.exp, 64, 16), target, 1))
    codes = {generate_code(lowered, target, 1)[1] for lowered in (one, other)}
    assert len(codes) == 1


def test_no_softmax_calls_the_library(target: Target) -> None:
    workload = softmax(m=16, n=64)
    candidates = one_of_each(samples(workload, target))
    assert len(candidates) > 1
    for candidate in candidates:
        assert not LIBRARY.search(machine_code(candidate, target)), candidate.sketch.name


def test_functions_of_devices_keep_their_instructions() -> None:
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80", "host": "llvm"})
    source = te.placeholder((256,), "float32", "X")
    result = te.compute((256,), lambda i: tirx.exp(source[i]), "Y")
    made = te.create_prim_func([source, result]).with_attr("global_symbol", "main")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": made}))
    (loop,) = schedule.get_loops(schedule.get_sblock("Y"))
    block, thread = schedule.split(loop, [None, 64])
    schedule.bind(block, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    pipeline, finalize_host, finalize_device = tir_pipeline()
    module = pipeline(tvm.tirx.transform.BindTarget(target)(schedule.mod))
    kernels = tvm.tirx.transform.Filter(lambda f: "cuda" in str(f.attrs["target"].kind))(module)
    assert "expf" in finalize_device()(kernels).script()
    hosts = tvm.tirx.transform.Filter(lambda f: "cuda" not in str(f.attrs["target"].kind))(module)
    assert finalize_host()(hosts).functions

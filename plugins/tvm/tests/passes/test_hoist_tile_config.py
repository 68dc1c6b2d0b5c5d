"""Tile registers are configured once in the body of a parallel loop, by those who agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.passes.hoist_tile_config import hoist_tile_config
from autotune_tvm.replay import schedule
from autotune_tvm.scheduled import scheduled_module
from autotune_tvm.tile_products import ask_for_tiles
from tvm import tirx
from tvm_ffi import structural_equal

from autotune.backends import BuildRequest, bind_copies
from autotune.ir.workloads import Workload, conv2d, gemm, random_inputs, reference_outputs
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import detect_cpu, preset

BACKEND = TVMBackend()
TARGET = preset("sapphirerapids").with_cores(2)
WORKLOADS = (
    gemm(m=64, n=64, k=128, requantize=7, dtype="u8s8s32"),
    conv2d(h=14, w=14, ci=64, co=96, pad=1, dtype="int8"),
)


def label(workload: Workload) -> str:
    return f"{workload.name} {' '.join(map(str, workload.parameters.values()))}"


def samples(workload: Workload) -> list[Candidate]:
    space = SketchSpace(workload, TARGET, BACKEND.limits(TARGET))
    return list(space.sample(len(space.sketches()), np.random.default_rng(0)))


@pytest.mark.parametrize("workload", WORKLOADS, ids=label)
def test_every_parallel_loop_with_calls_has_one_configuration(workload: Workload) -> None:
    for candidate in samples(workload):
        made = schedule(module_for(workload), candidate, workload).mod
        request = BuildRequest(workload, None, candidate, TARGET, 2)
        text = str(scheduled_module(request).script())
        before = str(made.script())
        assert text.count("ldtilecfg") == text.count("tilerelease") == 1
        assert text.count("tdpb") == before.count("tdpb") > 0
        assert text.index("T.parallel") < text.index("ldtilecfg") < text.index("tdpb")
        assert text.rindex("tdpb") < text.index("tilerelease")


def test_exact_on_two_threads() -> None:
    workload = WORKLOADS[0]
    if not set(TARGET.features) <= set(detect_cpu().features) or not ask_for_tiles():
        pytest.skip("this machine has no AMX")
    inputs = random_inputs(workload, np.random.default_rng(1))
    (name,) = workload.outputs
    expected = reference_outputs(workload, inputs)[name]
    for candidate in samples(workload):
        built = BACKEND.compile(BACKEND.lower(BuildRequest(workload, None, candidate, TARGET, 2)))
        call = bind_copies(built, workload, [inputs[tensor.name] for tensor in workload.inputs])
        call.run()
        np.testing.assert_array_equal(call.outputs()[0], expected, err_msg=str(candidate))


def intrinsic(name: str, *arguments: Any) -> Any:
    code = tvm.target.codegen.llvm_lookup_intrinsic_id(name)
    return tirx.Evaluate(tirx.call_llvm_intrin("void", tirx.const(code, "uint32"), *arguments))


def loop(kind: tirx.ForKind, statements: list[Any]) -> Any:
    body = tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]
    return tirx.For(tirx.Var("i", "int32"), 0, 4, kind, body)


def call(configuration: str) -> list[Any]:
    return [
        intrinsic("llvm.x86.ldtilecfg", tvm.ir.StringImm(configuration)),
        intrinsic("llvm.x86.tilezero", tirx.const(0, "int8")),
        intrinsic("llvm.x86.tilerelease"),
    ]


def module_of(body: Any) -> Any:
    return tvm.IRModule({"main": tirx.PrimFunc([], body)})


def test_the_configuration_moves_out_of_the_calls() -> None:
    inner = loop(tirx.ForKind.SERIAL, call("a"))
    before = module_of(loop(tirx.ForKind.PARALLEL, [inner]))
    configure, product, clear = call("a")
    body = [configure, loop(tirx.ForKind.SERIAL, [product]), clear]
    wanted = module_of(loop(tirx.ForKind.PARALLEL, body))
    assert structural_equal(hoist_tile_config(before), wanted, True)


@pytest.mark.parametrize(
    "body",
    [
        loop(tirx.ForKind.PARALLEL, [*call("a"), *call("b")]),
        loop(tirx.ForKind.SERIAL, call("a")),
        loop(tirx.ForKind.PARALLEL, [tirx.Evaluate(tirx.const(0, "int32"))]),
    ],
    ids=["two configurations", "no parallel loop", "no calls"],
)
def test_what_has_to_stay_stays(body: Any) -> None:
    module = module_of(body)
    assert structural_equal(hoist_tile_config(module), module, True)

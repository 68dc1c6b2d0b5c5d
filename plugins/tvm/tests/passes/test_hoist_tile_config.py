"""Tile registers are configured once in the body of a parallel loop, by those who agree."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from autotune_tvm.emit import module_for
from autotune_tvm.passes.hoist_tile_config import hoist_tile_config
from autotune_tvm.replay import schedule
from tvm import tirx
from tvm_ffi import structural_equal
from tvm_programs import check_exact, need, samples, scheduled_text

from autotune.ir.workloads import Workload, conv2d, gemm
from autotune.targets import preset

TARGET = preset("sapphirerapids").with_cores(2)
WORKLOADS = (
    gemm(m=64, n=64, k=128, requantize=7, dtype="u8s8s32"),
    conv2d(h=14, w=14, ci=64, co=96, pad=1, dtype="int8"),
)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_parallel_loop_with_calls_has_one_configuration(workload: Workload) -> None:
    for candidate in samples(workload, TARGET):
        made = schedule(module_for(workload), candidate, workload).mod
        text = scheduled_text(candidate, TARGET, 2)
        before = str(made.script())
        assert text.count("ldtilecfg") == text.count("tilerelease") == 1
        assert text.count("tdpb") == before.count("tdpb") > 0
        assert text.index("T.parallel") < text.index("ldtilecfg") < text.index("tdpb")
        assert text.rindex("tdpb") < text.index("tilerelease")


def test_exact_on_two_threads() -> None:
    need(TARGET)
    check_exact(samples(WORKLOADS[0], TARGET), TARGET, threads=2)


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

"""Programs for processors with AMX, made to run on others."""

from __future__ import annotations

from typing import Any

import tvm
from autotune_tvm.backend import argument_names_of
from autotune_tvm.compiler import generate_code, lower_module, without_checks
from autotune_tvm.executable import TVMExecutable
from autotune_tvm.linked_text import linked, with_functions
from autotune_tvm.printed import printed_functions
from tile_machine import INTRINSICS, TileMachine
from tvm import tirx
from tvm_ffi import structural_map

from autotune.sketches import Candidate
from autotune.targets import Target, detect_cpu
from autotune.testing.programs import request_for

__all__ = ["emulated"]

_PREFIX = "emulated_"
_TYPES = {"c_ubyte": "i8", "c_long": "i64", "c_void_p": "ptr"}
_SYSCALL = "@syscall("


def emulated(
    candidate: Candidate, target: Target, machine: TileMachine, threads: int = 1
) -> TVMExecutable:
    """A candidate that calls ``machine`` in place of instructions on tile registers.
    Args:
        candidate: What is scheduled for ``target``.
        target: One with tile registers.
        machine: Has to be kept as long as the program.
        threads: On how many threads the program runs.
    """
    request = request_for(candidate, target, threads)
    module, packed = printed_functions(request).module()
    here = detect_cpu().with_cores(threads)
    lowered = with_functions(
        without_checks(lower_module(module, here, threads)),
        lambda function: function.with_body(_emulated(function.body, machine)),
    )
    module, digest = generate_code(lowered, here, threads)
    workload = candidate.sketch.workload
    return TVMExecutable(module, workload, argument_names_of(request), threads, digest, packed)


def _emulated(body: Any, machine: TileMachine) -> Any:
    addresses = machine.addresses
    called: set[str] = set()

    def changed(node: Any) -> Any:
        name = _intrinsic(node).removeprefix("llvm.x86.")
        if name not in INTRINSICS:
            return node
        called.add(name)
        arguments = list(node.value.args)[1:]
        return tirx.Evaluate(tirx.call_extern("int32", f"{_PREFIX}{name}", *arguments))

    def granted(node: Any) -> Any:
        if not isinstance(node.value, tvm.ir.StringImm) or _SYSCALL not in node.value.value:
            return node
        text = node.value.value.replace("declare i64 @syscall(i64, ...)\n", "")
        place = f"inttoptr (i64 {addresses['syscall']} to ptr)("
        asking = tvm.ir.StringImm(text.replace(_SYSCALL, place))
        return tirx.AttrStmt(node.node, node.attr_key, asking, node.body)

    found = body
    for kind, change in (
        (tirx.Evaluate, changed),
        (tirx.AttrStmt, granted),
    ):
        found = structural_map(found, (kind, change))
    definitions = [_definition(name, addresses[name]) for name in sorted(called)]
    return linked(found, definitions)


def _intrinsic(node: Any) -> str:
    """Name of the LLVM intrinsic that a statement calls; empty where it calls something else."""
    call, operator = node.value, tvm.ir.Op.get("tirx.call_llvm_intrin")
    if not isinstance(call, tvm.ir.Call) or not call.op.same_as(operator):
        return ""
    return str(tvm.target.codegen.llvm_get_intrinsic_name(int(call.args[0].value)))


def _definition(name: str, address: int) -> str:
    """A function of LLVM that calls the one at an address."""
    kinds = [_TYPES[kind.__name__] for kind in INTRINSICS[name]]
    given = ", ".join(f"{kind} %a{at}" for at, kind in enumerate(kinds))
    called = f"call void inttoptr (i64 {address} to ptr)({given})"
    return f"define linkonce_odr i32 @{_PREFIX}{name}({given}) {{\n  {called}\n  ret i32 0\n}}"

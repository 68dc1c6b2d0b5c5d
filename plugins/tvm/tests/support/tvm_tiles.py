"""Programs for processors with AMX, made to run on others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from autotune_tvm.backend import argument_names_of
from autotune_tvm.compiler import generate_code, lower_module, without_checks
from autotune_tvm.executable import TVMExecutable
from autotune_tvm.linked_text import linked, with_functions
from autotune_tvm.passes.statements import intrinsic_name, intrinsic_of
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
_BYTES = 64
_VECTOR = f"<{_BYTES} x i8>"


def emulated(
    candidate: Candidate, target: Target, machine: TileMachine, threads: int = 1
) -> TVMExecutable:
    """A candidate that calls ``machine`` in place of instructions on tile registers.

    Permutations of bytes, by which rows are interleaved, are functions in LLVM's text form: this
    processor may lack those instructions, too.

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
    permutations: dict[str, str] = {}

    def changed(node: Any) -> Any:
        name = intrinsic_of(node).removeprefix("llvm.x86.")
        if name not in INTRINSICS:
            return node
        called.add(name)
        arguments = list(node.value.args)[1:]
        return tirx.Evaluate(tirx.call_extern("int32", f"{_PREFIX}{name}", *arguments))

    def permuted(node: Any) -> Any:
        name = intrinsic_name(node).removeprefix("llvm.x86.avx512.")
        if name not in _PERMUTATIONS:
            return node
        made = f"{_PREFIX}{name.replace('.', '_')}"
        permutations[made] = _PERMUTATIONS[name](made)
        return tirx.call_pure_extern(node.ty.dtype, made, *list(node.args)[1:])

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
        (tvm.ir.Call, permuted),
        (tirx.AttrStmt, granted),
    ):
        found = structural_map(found, (kind, change))
    definitions = [_definition(name, addresses[name]) for name in sorted(called)]
    return linked(found, [*definitions, *permutations.values()])


def _definition(name: str, address: int) -> str:
    """A function of LLVM that calls the one at an address."""
    kinds = [_TYPES[kind.__name__] for kind in INTRINSICS[name]]
    given = ", ".join(f"{kind} %a{at}" for at, kind in enumerate(kinds))
    called = f"call void inttoptr (i64 {address} to ptr)({given})"
    return f"define linkonce_odr i32 @{_PREFIX}{name}({given}) {{\n  {called}\n  ret i32 0\n}}"


def _permuted_bytes(name: str) -> str:
    """A function of LLVM that does what ``vpermb`` does: bytes at indices modulo 64."""
    lines = []
    for at in range(_BYTES):
        lines += [
            f"  %i{at} = extractelement {_VECTOR} %indices, i32 {at}",
            f"  %m{at} = and i8 %i{at}, {_BYTES - 1}",
            f"  %b{at} = extractelement {_VECTOR} %bytes, i8 %m{at}",
        ]
    return _of_bytes(name, "bytes", "indices", lines)


def _shifted_bytes(name: str) -> str:
    """A function of LLVM that does what ``vpmultishiftqb`` does.

    Each byte is that from a bit of its group of 64 on, in a circle.
    """
    lines = [f"  %groups = bitcast {_VECTOR} %bytes to <8 x i64>"]
    for at in range(_BYTES):
        lines += [
            f"  %i{at} = extractelement {_VECTOR} %indices, i32 {at}",
            f"  %s{at} = and i8 %i{at}, 63",
            f"  %r{at} = zext i8 %s{at} to i64",
            f"  %g{at} = extractelement <8 x i64> %groups, i32 {at // 8}",
            f"  %t{at} = call i64 @llvm.fshr.i64(i64 %g{at}, i64 %g{at}, i64 %r{at})",
            f"  %b{at} = trunc i64 %t{at} to i8",
        ]
    declared = "declare i64 @llvm.fshr.i64(i64, i64, i64)\n"
    return declared + _of_bytes(name, "indices", "bytes", lines)


def _of_bytes(name: str, first: str, second: str, lines: Sequence[str]) -> str:
    """A function of two vectors of bytes, whose results are named ``b0`` and so on in its body."""
    given = f"{_VECTOR} %{first}, {_VECTOR} %{second}"
    joined = [
        f"  %v{at + 1} = insertelement {_VECTOR} {f'%v{at}' if at else 'poison'}, i8 %b{at}, "
        f"i32 {at}"
        for at in range(_BYTES)
    ]
    text = "\n".join((*lines, *joined))
    end = f"  ret {_VECTOR} %v{_BYTES}"
    return f"define linkonce_odr {_VECTOR} @{name}({given}) {{\n{text}\n{end}\n}}"


_PERMUTATIONS: dict[str, Callable[[str], str]] = {
    "permvar.qi.512": _permuted_bytes,
    "pmultishift.qb.512": _shifted_bytes,
}

"""Programs for processors with AMX, made to run and to be read on others."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from attrs import evolve
from autotune_mlir import bindings, compiler
from autotune_mlir.code_generation import Generated, generate
from autotune_mlir.compiler import Lowered
from autotune_mlir.schedule import schedule
from autotune_mlir.scripted import program_of
from tile_machine import INTRINSICS, TileMachine

from autotune.sketches import Candidate

__all__ = ["emulated", "lowered", "tile_instructions"]

_PREFIX = "emulated_"
_VEX = re.compile(rb"\xc4(.)(.)([\x49\x4b\x5c\x5e])(.)", re.DOTALL)
# By opcode, prefix (none, 66, F3, F2), and whether both operands are registers.
_OPCODES = {
    (0x49, 0, False): "ldtilecfg",
    (0x49, 0, True): "tilerelease",
    (0x49, 3, True): "tilezero",
    (0x4B, 3, False): "tileloadd",
    (0x4B, 2, False): "tilestored",
    (0x5C, 2, True): "tdpbf16ps",
    (0x5E, 1, True): "tdpbusd",
    (0x5E, 3, True): "tdpbssd",
}
_FEATURES = ("amx-tile", "amx-int8", "amx-bf16")


def lowered(candidate: Candidate, threads: int = 1, **options: Any) -> Lowered:
    """A candidate in LLVM's dialect, whatever this machine has."""
    workload = candidate.sketch.workload
    program = program_of(workload, None, candidate)
    return compiler.lower(program, schedule(candidate, workload), threads=threads, **options)


def emulated(program: Lowered, machine: TileMachine) -> Generated:
    """Machine code that calls ``machine`` in place of instructions on tile registers."""
    ir, module = bindings.load().ir, program.module
    with module.context, ir.Location.unknown():
        called: set[str] = set()
        for operation in _operations(module.operation):
            if operation.name == "llvm.call_intrinsic":
                name = operation.attributes["intrin"].value.removeprefix("llvm.x86.")
                if name in INTRINSICS:
                    called.add(name)
                    _call(ir, operation, f"{_PREFIX}{name}")
        declared = [
            f"llvm.func @{_PREFIX}{name}({', '.join(map(_kind, INTRINSICS[name]))})"
            for name in called
        ]
        added = ir.Module.parse("\n".join(declared))
        for operation in list(added.body.operations):
            module.body.append(operation)
        for view in module.body.operations:
            if view.operation.attributes["sym_name"].value == "syscall":
                view.operation.attributes["sym_name"] = ir.StringAttr.get(f"{_PREFIX}syscall")
                ir.SymbolTable.replace_all_symbol_uses(
                    "syscall", f"{_PREFIX}syscall", module.operation
                )
                called.add("syscall")
    addresses = machine.addresses
    made = generate(program, {f"{_PREFIX}{name}": addresses[name] for name in called})
    return evolve(made, engine=(made.engine, machine))


def tile_instructions(program: Lowered) -> list[str]:
    """Instructions on tile registers in the code for a processor with AMX, in its order."""
    ir = bindings.load().ir
    with program.module.context:
        listed = ", ".join(f'"+{feature}"' for feature in _FEATURES)
        features = ir.Attribute.parse(f"#llvm.target_features<[{listed}]>")
        for view in program.module.body.operations:
            if view.operation.name == "llvm.func":
                view.operation.attributes["target_cpu"] = ir.StringAttr.get("sapphirerapids")
                view.operation.attributes["target_features"] = features
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.o"
        generate(program).engine.dump_to_object_file(str(path))
        code = path.read_bytes()
    found = []
    for match in _VEX.finditer(code):
        first, second, opcode, operands = match[1][0], match[2][0], match[3][0], match[4][0]
        if first & 0x1F == 2 and not second & 0x84:  # map 0F38, W0, 128 bits
            found.append(_name(opcode, second & 3, operands))
    return [name for name in found if name]


def _name(opcode: int, prefix: int, operands: int) -> str:
    """The name of an instruction by its encoding; nothing where it is none of these.

    Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
    """
    in_registers = operands >> 6 == 3
    name = _OPCODES.get((opcode, prefix, in_registers), "")
    if name == "tilerelease" and operands != 0xC0:
        return ""
    return "" if name == "ldtilecfg" and operands >> 3 & 7 else name


def _operations(operation: Any) -> list[Any]:
    found: list[Any] = []

    def visit(inner: Any) -> Any:
        found.append(inner.operation)
        return bindings.load().ir.WalkResult.ADVANCE

    operation.walk(visit)
    return found


def _call(ir: Any, operation: Any, name: str) -> None:
    attributes = {
        "callee": ir.FlatSymbolRefAttr.get(name),
        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operation.operands), 0]),
    }
    with ir.InsertionPoint(operation), operation.location:
        ir.Operation.create("llvm.call", [], list(operation.operands), attributes)
    operation.erase()


def _kind(kind: Any) -> str:
    return {"c_ubyte": "i8", "c_long": "i64", "c_void_p": "!llvm.ptr"}[kind.__name__]

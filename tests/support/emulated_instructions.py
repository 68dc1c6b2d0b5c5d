"""Instructions in printed LLVM IR, as functions in its place: programs run on any processor.

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, the pages of
``VPDPBUSD``, ``VDPBF16PS`` and ``PMADDWD``; for tile registers see :mod:`tile_machine`.
"""

from __future__ import annotations

import re

from attrs import evolve
from tile_machine import INTRINSICS, TileMachine

from autotune.backends import Executable
from autotune.backends.native import NativeBackend
from autotune.backends.native.machine_code import llvm
from autotune.sketches import Candidate
from autotune.targets import Target, detect_cpu
from autotune.targets.processors import missing_features
from autotune.testing.programs import request_for

_TYPES = {"c_ubyte": "i8", "c_long": "i64", "c_void_p": "ptr"}
_DECLARED = re.compile(r"^declare .* @(llvm\.x86\.[\w.]+)\(.*\)$", re.MULTILINE)
_LANES = {"256": 8, "512": 16}
_WORDS = {"avx2.pmadd.wd": 8, "avx512.pmaddw.d.512": 16}


def emulated(
    candidate: Candidate, target: Target, machine: TileMachine, threads: int = 1
) -> Executable:
    """The program of a candidate for ``target``, which runs here.

    Args:
        candidate: What is printed.
        target: What it is printed for.
        machine: Has to be kept as long as the program.
        threads: On how many threads it runs.
    """
    backend, request = NativeBackend(), request_for(candidate, target, threads)
    lowered = backend.lower(request)
    text = emulated_text(str(lowered.program.text), machine)
    program = evolve(lowered.program, text=text, uses_tiles=False)
    here = evolve(request, target=_compiled_for(target))
    return backend.compile(evolve(lowered, request=here, program=program))


def _compiled_for(target: Target) -> Target:
    """The target where this machine has all its instructions, or else this machine.

    LLVM takes minutes and gigabytes over shuffles of bytes that it moves out of a broadcast where
    a processor with AVX512-VBMI is given what is printed for one without.
    """
    here = detect_cpu()
    return here if missing_features(target.features, here.features) else target


def assembly(text: str, target: Target) -> str:
    """The instructions of a target that a program becomes, in AT&T syntax."""
    binding = llvm()
    machine = binding.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(
        cpu=target.processor, features=",".join(f"+{it}" for it in target.features), opt=2
    )
    module = binding.parse_assembly(text)
    options = binding.create_pipeline_tuning_options(2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return str(machine.emit_assembly(module))


def emulated_text(text: str, machine: TileMachine) -> str:
    """The text with functions of its own in place of those that stand for instructions."""
    names = sorted(set(_DECLARED.findall(text)))
    rest = _DECLARED.sub("", text)
    for name in sorted(names, key=len, reverse=True):
        rest = rest.replace(f"@{name}(", f"@emulated.{name}(")
    return "\n".join([rest, *(_definition(name, machine) for name in names)])


def _definition(name: str, machine: TileMachine) -> str:
    own = name.removeprefix("llvm.x86.")
    if own in INTRINSICS:
        kinds = [_TYPES[kind.__name__] for kind in INTRINSICS[own]]
        given = ", ".join(f"{kind} %a{at}" for at, kind in enumerate(kinds))
        call = f"call void inttoptr (i64 {machine.addresses[own]} to ptr)({given})"
        return f"define internal void @emulated.{name}({given}) {{\n  {call}\n  ret void\n}}"
    if own in _WORDS:
        return _words(name, _WORDS[own])
    _, instruction, bits = own.split(".")
    return {"vpdpbusd": _bytes, "dpbf16ps": _halves}[instruction](name, _LANES[bits])


def _words(name: str, lanes: int) -> str:
    """Two products of words in each lane."""
    sums, words, wide = f"<{lanes} x i32>", f"<{2 * lanes} x i16>", f"<{2 * lanes} x i32>"
    lines = [
        f"%s = add {sums} zeroinitializer, zeroinitializer",
        f"%x = sext {words} %a to {wide}",
        f"%y = sext {words} %b to {wide}",
        f"%p = mul {wide} %x, %y",
    ]
    return _folded(name, f"{words} %a, {words} %b", sums, wide, lines, lanes, "add")


def _bytes(name: str, lanes: int) -> str:
    """Sums of four products of unsigned and signed bytes."""
    sums, bytes_, wide = f"<{lanes} x i32>", f"<{4 * lanes} x i8>", f"<{4 * lanes} x i32>"
    lines = [
        f"%x = zext {bytes_} %a to {wide}",
        f"%y = sext {bytes_} %b to {wide}",
        f"%p = mul {wide} %x, %y",
    ]
    return _folded(name, f"{sums} %s, {bytes_} %a, {bytes_} %b", sums, wide, lines, lanes, "add")


def _halves(name: str, lanes: int) -> str:
    """Sums of two products of bfloat16, the odd one first."""
    sums, halves, wide = f"<{lanes} x float>", f"<{2 * lanes} x bfloat>", f"<{2 * lanes} x i32>"
    lines = []
    for of, bits, number in (("a", "c", "x"), ("b", "d", "y")):
        lines += [
            f"%{bits} = bitcast {halves} %{of} to <{2 * lanes} x i16>",
            f"%{bits}w = zext <{2 * lanes} x i16> %{bits} to {wide}",
            f"%{bits}s = shl {wide} %{bits}w, splat (i32 16)",
            f"%{number} = bitcast {wide} %{bits}s to <{2 * lanes} x float>",
        ]
    lines += [f"%p = fmul <{2 * lanes} x float> %x, %y"]
    given = f"{sums} %s, {halves} %a, {halves} %b"
    return _folded(name, given, sums, f"<{2 * lanes} x float>", lines, lanes, "fadd")


def _folded(
    name: str, given: str, sums: str, wide: str, lines: list[str], lanes: int, add: str
) -> str:
    """A function that adds neighbouring products ``%p`` to sums ``%s``, the last ones first."""
    group = int(wide[1:].split()[0]) // lanes
    total = "%s"
    for part in reversed(range(group)):
        order = ", ".join(f"i32 {group * lane + part}" for lane in range(lanes))
        lines += [
            f"%p{part} = shufflevector {wide} %p, {wide} poison, <{lanes} x i32> <{order}>",
            f"%t{part} = {add} {sums} {total}, %p{part}",
        ]
        total = f"%t{part}"
    body = "\n".join(f"  {line}" for line in [*lines, f"ret {sums} {total}"])
    return f"define internal {sums} @emulated.{name}({given}) noinline {{\n{body}\n}}"

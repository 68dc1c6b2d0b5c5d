"""The functions of a kernel in LLVM IR, around the programs of its variants.

Every function has a form for each variant. What is exported asks the processor which of them it
can run, and calls it.
"""

from __future__ import annotations

from autotune.backends.arrays import ALIGNMENT
from autotune.backends.native.exports.features import detector
from autotune.backends.native.exports.kernel import (
    MOST_THREADS,
    Call,
    Kernel,
    Part,
    Size,
    Variant,
)

__all__ = ["exported_names", "interface"]

_NO_PROCESSOR, _NO_SCRATCH = -1, -2


def exported_names(kernel: Kernel) -> frozenset[str]:
    """Functions that others call."""
    calls, sizes = (it.name for it in kernel.calls), (it.name for it in kernel.sizes)
    return frozenset([f"{kernel.name}_variant", *calls, *sizes])


def interface(kernel: Kernel) -> str:
    """LLVM IR of all functions of a kernel but the programs themselves."""
    texts = [_chosen(kernel)]
    for variant in kernel.variants:
        texts += [_size(size, variant.prefix) for size in variant.sizes]
        texts += [_call(call, variant) for call in variant.calls]
    for size in kernel.sizes:
        given = () if size.each is None else ("i64 %threads",)
        texts.append(_dispatched(kernel, size.name, "i64", given, 0))
    for call in kernel.calls:
        texts.append(_dispatched(kernel, call.name, "i32", _parameters(call), _NO_PROCESSOR))
    entries = {
        f"declare i32 @{variant.prefix}{call.entry}(ptr, ptr, ptr)"
        for variant in kernel.variants
        for call in variant.calls
    }
    return "\n\n".join([*texts, *sorted(entries)])


def _chosen(kernel: Kernel) -> str:
    """Print what chooses a variant, and says which."""
    machines = [variant.machine for variant in kernel.variants]
    if machines[0].is_x86:
        chooses = detector("chosen", [variant.features for variant in kernel.variants])
    else:
        chooses = "define internal i32 @chosen() {\n  ret i32 0\n}"
    names = []
    for number, machine in enumerate(machines):
        text = "".join(f"\\{byte:02X}" for byte in machine.name.encode())
        size = len(machine.name.encode()) + 1
        names.append(f'@name{number} = private constant [{size} x i8] c"{text}\\00"')
    found = "null"
    lines = ["  %chosen = call i32 @chosen()"]
    for number in range(len(machines)):
        lines += [
            f"  %is{number} = icmp eq i32 %chosen, {number}",
            f"  %n{number} = select i1 %is{number}, ptr @name{number}, ptr {found}",
        ]
        found = f"%n{number}"
    body = "\n".join(
        [f"define ptr @{kernel.name}_variant() {{", *lines, f"  ret ptr {found}", "}"]
    )
    return "\n".join([*names, chooses, body])


def _dispatched(
    kernel: Kernel, name: str, result: str, parameters: tuple[str, ...], otherwise: int
) -> str:
    """A function that calls the form of a variant that the processor runs."""
    given, count = ", ".join(parameters), len(kernel.variants)
    cases = " ".join(f"i32 {number}, label %v{number}" for number in range(count))
    lines = ["  %chosen = call i32 @chosen()", f"  switch i32 %chosen, label %none [{cases}]"]
    for number, variant in enumerate(kernel.variants):
        call = f"call {result} @{variant.prefix}{name}({given})"
        lines += [f"v{number}:", f"  %r{number} = {call}", f"  ret {result} %r{number}"]
    body = "\n".join([*lines, "none:", f"  ret {result} {otherwise}"])
    return f"define {result} @{name}({given}) {{\n{body}\n}}"


def _parameters(call: Call) -> tuple[str, ...]:
    arrays = [f"ptr %a{number}" for number in range(len(call.arguments))]
    if call.scratch is None:
        return tuple(arrays)
    return (*arrays, "ptr %scratch", "i64 %bytes", "i64 %threads", "ptr %launch", "ptr %pool")


def _size(size: Size, prefix: str) -> str:
    given = "" if size.each is None else "i64 %threads"
    lines: list[str] = []
    result = str(size.fixed)
    if size.each:
        lines = [
            f"  %each = mul i64 %threads, {size.each}",
            f"  %all = add i64 %each, {size.fixed}",
        ]
        result = "%all"
    body = "\n".join([*lines, f"  ret i64 {result}"])
    return f"define internal i64 @{prefix}{size.name}({given}) {{\n{body}\n}}"


def _call(call: Call, variant: Variant) -> str:
    """The form of a function for one variant: it checks what it is given, and runs the program."""
    lines, wrong = _checked(call)
    lines += [
        f"  %bad = icmp ne i32 {wrong}, 0",
        "  br i1 %bad, label %refused, label %fine",
        "refused:",
        f"  ret i32 {wrong}",
        "fine:",
        f"  %table = alloca [{variant.arrays} x ptr]",
        f"  store [{variant.arrays} x ptr] zeroinitializer, ptr %table",
    ]
    for index, position in enumerate(call.positions):
        lines += _placed(position, f"%a{index}")
    pool = "ptr null, ptr null"
    if call.scratch is not None:
        pool = "ptr %launch, ptr %pool"
        for part in call.scratch[0]:
            own = f"%part{part.position}"
            lines += [
                f"  {own}.each = mul i64 %threads, {part.each}",
                f"  {own}.at = add i64 {own}.each, {part.fixed}",
                f"  {own} = getelementptr i8, ptr %scratch, i64 {own}.at",
                *_placed(part.position, own),
            ]
    prefix = variant.prefix
    lines += [f"  %done = call i32 @{prefix}{call.entry}(ptr %table, {pool})", "  ret i32 %done"]
    body, given = "\n".join(lines), ", ".join(_parameters(call))
    return f"define internal i32 @{prefix}{call.name}({given}) {{\n{body}\n}}"


def _placed(position: int, value: str) -> list[str]:
    return [
        f"  %slot{position} = getelementptr ptr, ptr %table, i64 {position}",
        f"  store ptr {value}, ptr %slot{position}",
    ]


def _checked(call: Call) -> tuple[list[str], str]:
    """The number of the first array that is null or unaligned, or what scratch memory lacks."""
    lines, wrong = ([], "0") if call.scratch is None else _checked_scratch(*call.scratch)
    for index in reversed(range(len(call.arguments))):
        lines += [
            *_unaligned(f"%a{index}"),
            f"  %wrong{index} = select i1 %a{index}.bad, i32 {index + 1}, i32 {wrong}",
        ]
        wrong = f"%wrong{index}"
    return lines, wrong


def _unaligned(value: str) -> list[str]:
    return [
        f"  {value}.address = ptrtoint ptr {value} to i64",
        f"  {value}.null = icmp eq i64 {value}.address, 0",
        f"  {value}.rest = and i64 {value}.address, {ALIGNMENT - 1}",
        f"  {value}.apart = icmp ne i64 {value}.rest, 0",
        f"  {value}.bad = or i1 {value}.null, {value}.apart",
    ]


def _checked_scratch(parts: tuple[Part, ...], size: Size) -> tuple[list[str], str]:
    lines = [
        "  %others = sub i64 %threads, 1",
        f"  %idle = icmp uge i64 %others, {MOST_THREADS}",
    ]
    bad = "%idle"
    if parts:
        lines += [
            *_unaligned("%scratch"),
            f"  %each = mul i64 %threads, {size.each}",
            f"  %need = add i64 %each, {size.fixed}",
            "  %small = icmp ult i64 %bytes, %need",
            "  %unfit = or i1 %scratch.bad, %small",
            "  %lacks = or i1 %unfit, %idle",
        ]
        bad = "%lacks"
    return [*lines, f"  %memory = select i1 {bad}, i32 {_NO_SCRATCH}, i32 0"], "%memory"

"""Random operations keep their meaning, whatever their maps, iterators and inits."""

from __future__ import annotations

import numpy as np
from attrs import frozen
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.importing.reading import read_text
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.backends import BuildRequest
from autotune.targets import detect_cpu
from autotune.testing.programs import check_program

COMBINERS = ("arith.addf", "arith.mulf", "arith.maximumf", "arith.minimumf")
OPERATIONS = ("arith.addf", "arith.subf", "arith.mulf", "arith.maximumf", "arith.minimumf")


@frozen
class Operation:
    """A ``linalg.generic`` whose init is filled or an argument, and a copy of its result.

    Attributes:
        inputs: Types of the tensors %a, %b and %c.
        result: Type of the result, %1.
        body: The lines of the function.
    """

    inputs: tuple[str, ...]
    result: str
    body: str

    def on_tensors(self) -> str:
        """A function as people write it."""
        parameters = ", ".join(
            f"%{name}: {kind}" for name, kind in zip("abc", self.inputs, strict=True)
        )
        return (
            f"func.func @f({parameters}) -> {self.result} {{\n{self.body}\n"
            f"return %1 : {self.result}\n}}\n"
        )

    def on_buffers(self) -> str:
        """The same lines in a function that can be compiled as it is."""
        kinds = [*self.inputs, self.result]
        buffers = [kind.replace("tensor", "memref") for kind in kinds]
        parameters = ", ".join(f"%p{number}: {kind}" for number, kind in enumerate(buffers))
        reads = "\n".join(
            f"%{name} = bufferization.to_tensor %p{number} restrict : "
            f"{buffers[number]} to {kinds[number]}"
            for number, name in enumerate("abc")
        )
        return (
            f"func.func @kernel({parameters}) attributes {{llvm.emit_c_interface}} {{\n{reads}\n"
            f"{self.body}\nbufferization.materialize_in_destination %1 in restrict writable "
            f"%p3 : ({self.result}, {buffers[3]}) -> ()\nreturn\n}}\n"
        )


@frozen
class Read:
    """An operand: its type, and its map's results."""

    kind: str
    results: tuple[str, ...]


@st.composite
def reads(draw: st.DrawFn, extents: list[int], wanted: list[int]) -> Read:
    """An operand that is indexed by each of the iterators ``wanted``, and by affine forms."""
    results = [(f"d{axis}", extents[axis]) for axis in wanted]
    for _ in range(draw(st.integers(0, 2))):
        left, right = (draw(st.integers(0, len(extents) - 1)) for _ in range(2))
        scale, shift = draw(st.integers(1, 3)), draw(st.integers(0, 2))
        last = (extents[left] - 1) * scale + (extents[right] - 1) + shift
        spare = draw(st.integers(0, 1))
        results.append((f"d{left} * {scale} + d{right} + {shift}", last + 1 + spare))
    if draw(st.booleans()):
        results.append(("0", 1))
    order = draw(st.permutations(results))
    shape = "".join(f"{extent}x" for _, extent in order)
    return Read(f"tensor<{shape}f32>", tuple(text for text, _ in order))


@st.composite
def bodies(draw: st.DrawFn, arguments: list[str], combine: bool) -> str:
    """Lines that compute %r from the arguments and, in one way or another, from %o."""
    values = list(arguments) if combine else [*arguments, "%o"]
    lines = []
    for number in range(draw(st.integers(0 if combine else 1, 3))):
        operands = ", ".join(draw(st.sampled_from(values)) for _ in range(2))
        name = f"%v{number}"
        lines.append(f"{name} = {draw(st.sampled_from(OPERATIONS))} {operands} : f32")
        values.append(name)
    if combine:
        operands = ", ".join(draw(st.permutations(["%o", values[-1]])))
        lines.append(f"%r = {draw(st.sampled_from(COMBINERS))} {operands} : f32")
    else:
        lines.append(f"%r = arith.negf {values[-1]} : f32")
    return "\n".join(lines)


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    """An operation; its output and its iterators come in any order."""
    parallel, reduced = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    count = parallel + reduced
    extents = [draw(st.integers(1, 5)) for _ in range(count)]
    order = draw(st.permutations(range(count)))
    output, rest = order[:parallel], sorted(order[parallel:])
    operands = [draw(reads(extents, rest)), draw(reads(extents, []))]
    kind = "tensor<" + "".join(f"{extents[axis]}x" for axis in output) + "f32>"
    dims = ", ".join(f"d{axis}" for axis in range(count))
    maps = [*(operand.results for operand in operands), tuple(f"d{axis}" for axis in output)]
    listed = ", ".join(f"affine_map<({dims}) -> ({', '.join(item)})>" for item in maps)
    kinds = ", ".join('"reduction"' if axis in rest else '"parallel"' for axis in range(count))
    types = ", ".join(operand.kind for operand in operands)
    number = draw(st.sampled_from([0.0, 1.0, -2.5, float("-inf"), float("inf")]))
    bits = np.float32(number).view(np.uint32)
    init = draw(st.sampled_from(["%c", "%filled"]))
    body = (
        f"%number = arith.constant 0x{bits:08X} : f32\n%empty = tensor.empty() : {kind}\n"
        f"%filled = linalg.fill ins(%number : f32) outs(%empty : {kind}) -> {kind}\n"
        f"%0 = linalg.generic {{indexing_maps = [{listed}], iterator_types = [{kinds}]}} "
        f"ins(%a, %b : {types}) outs({init} : {kind}) {{\n"
        f"^bb0(%x: f32, %y: f32, %o: f32):\n{draw(bodies(['%x', '%y'], bool(reduced)))}\n"
        f"linalg.yield %r : f32\n}} -> {kind}\n"
        f"%1 = linalg.copy ins(%0 : {kind}) outs(%empty : {kind}) -> {kind}"
    )
    return Operation((*(operand.kind for operand in operands), kind), kind, body)


@settings(derandomize=True)
@given(operations())
def test_an_operation_keeps_its_meaning(operation: Operation) -> None:
    backend, target = MLIRBackend(), detect_cpu()
    workload, program = read_text(operation.on_tensors(), "program.mlir")
    for text in (program, operation.on_buffers()):
        request = BuildRequest(workload, text, None, target, 1)
        check_program(backend, request, tolerance=1e-4)

"""Programs of linalg on tensors become workloads, and are baselines themselves."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from autotune_mlir import bindings
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import on_tensors
from autotune_mlir.importing import importer
from autotune_mlir.importing.reading import BESIDE_LINALG, read_text
from autotune_mlir.importing.scalar_import import BODY_OPERATIONS, DTYPES
from indexed_workloads import INDEXED_WORKLOADS
from made_workloads import ROUND_TRIPS
from mlir_assembled_programs import ASSEMBLED
from mlir_compiled_programs import COMPILED_PROGRAMS
from mlir_programs import PROGRAMS, function

from autotune.backends import BuildRequest, ImportedProgram, ProgramFile
from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.ir.expressions import Load, Select, var
from autotune.ir.workloads import Workload, gemm, random_inputs, reference_outputs
from autotune.measure.validation import expectations, mismatch
from autotune.targets import Target
from autotune.testing.programs import (
    check_program,
    run_executable,
)

Importer = Callable[..., ImportedProgram]
ALL = {**PROGRAMS, **ASSEMBLED, **COMPILED_PROGRAMS}


@pytest.fixture(scope="module")
def imported() -> Importer:
    """Reads a text, in this process."""

    def read(text: str, function: str | None = None) -> ImportedProgram:
        return ImportedProgram(*read_text(text, "program.mlir", function))

    return read


@pytest.mark.parametrize("name", ALL)
def test_a_program_means_what_its_workload_says(
    name: str, backend: MLIRBackend, target: Target, imported: Importer
) -> None:
    known = ALL[name]
    program = imported(known.text)
    workload = program.workload
    assert [stage.name for stage in workload.stages] == known.stages
    request = BuildRequest(workload, program.program, None, target, 1)
    check_program(backend, request)
    if known.expected is not None:
        arrays = random_inputs(workload, np.random.default_rng(7))
        wanted = known.expected(*(arrays[tensor.name] for tensor in workload.inputs))
        found = run_executable(backend.build(request), workload, arrays)
        assert mismatch(expectations(workload, [np.asarray(wanted)]), found) is None


def test_the_baseline_is_what_was_imported(
    backend: MLIRBackend, target: Target, imported: Importer
) -> None:
    text = PROGRAMS["matmul"].text.replace("linalg.matmul", 'linalg.matmul {my.mark = "kept"}')
    program = imported(text)
    request = BuildRequest(program.workload, program.program, None, target, 1)
    assert "kept" in backend.show(request)


@pytest.mark.parametrize(
    "workload",
    [
        *ROUND_TRIPS.values(),
        *(it for it in INDEXED_WORKLOADS if "bool" not in it.dtypes),
    ],
    ids=lambda workload: workload.name,
)
def test_what_is_emitted_is_read_back(workload: Workload) -> None:
    read, _ = read_text(on_tensors(workload), workload.name)
    assert [stage.name for stage in read.stages] == [stage.name for stage in workload.stages]
    for before, after in zip(workload.stages, read.stages, strict=True):
        assert [axis.extent for axis in after.axes] == [axis.extent for axis in before.axes]
        assert [axis.kind for axis in after.axes] == [axis.kind for axis in before.axes]
        assert after.combiner == before.combiner
        assert after.flop == before.flop
    arrays = random_inputs(workload, np.random.default_rng(3))
    again = {
        tensor.name: arrays[known.name]
        for tensor, known in zip(read.inputs, workload.inputs, strict=True)
    }
    expected, found = reference_outputs(workload, arrays), reference_outputs(read, again)
    for name in workload.outputs:
        np.testing.assert_array_equal(found[name], expected[name])


def test_files_modules_and_functions_are_imported(
    read_in_process: None, backend: MLIRBackend, imported: Importer, tmp_path: Path
) -> None:
    text = PROGRAMS["matmul"].text
    mlir = bindings.load()
    path = tmp_path / "program.mlir"
    path.write_text(text)
    with mlir.ir.Context():
        module = mlir.ir.Module.parse(text)
        for program in (ProgramFile(path, "mlir"), module, module.body.operations[0]):
            assert backend.imports(program)
            assert backend.import_program(program) == imported(text)
    for other in (None, text, np.zeros(3), gemm(m=3, n=4, k=5), ProgramFile("x.onnx", "onnx")):
        assert not backend.imports(other)


@pytest.mark.needs("LLVM bindings")
def test_the_other_distribution_reads_the_same(
    imported: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both in one process, where both are installed."""
    found = []
    try:
        for root in bindings.DISTRIBUTIONS:
            monkeypatch.setenv(bindings.VARIABLE, root)
            bindings.load.cache_clear()
            read = {name: imported(known.text).workload for name, known in PROGRAMS.items()}
            found.append(read)
    finally:
        bindings.load.cache_clear()
    assert found[0] == found[1]


def test_padding_becomes_a_select(imported: Importer) -> None:
    pad = imported(PROGRAMS["conv-padded"].text).workload.stage("pad")
    assert isinstance(pad.body, Select)
    assert pad.body.on_true == Load("arg0", (var("d0"), var("d1") - 1, var("d2") - 2, var("d3")))


def test_marks_name_stages(imported: Importer) -> None:
    text = PROGRAMS["matmul"].text.replace("linalg.matmul", 'linalg.matmul {autotune.stage = "Q"}')
    assert imported(text).workload.outputs == ("Q",)


def test_a_function_is_chosen(imported: Importer) -> None:
    one = PROGRAMS["matmul"].text.replace("@f(", "@one(")
    two = PROGRAMS["chain"].text.replace("@f(", "@two(")
    hidden = PROGRAMS["chain"].text.replace("@f(", "private @three(")
    assert imported(one + two, "two").workload.name == "two"
    assert imported(one + two, "one").workload.name == "one"
    assert imported(one + hidden).workload.name == "one"
    assert imported(one + hidden, "three").workload.name == "three"
    with pytest.raises(InvalidValueError, match=r"2 functions \(one, two\).*--function NAME"):
        imported(one + two)
    with pytest.raises(UnknownNameError, match="'twoo'; available: one, two. Did you mean 'two'"):
        imported(one + two, "twoo")


def elementwise_generic(body: str, maps: str = "", kinds: str = '"parallel", "parallel"') -> str:
    """A function of one generic over %x from %a and %o from %b; its body yields %r."""
    chosen = maps or "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>"
    return function(
        "%0 = linalg.generic {indexing_maps = [" + chosen + "], iterator_types = [" + kinds + "]} "
        "ins(%a : tensor<4x6xf32>) outs(%b : tensor<4x6xf32>) {\n^bb0(%x: f32, %o: f32):\n"
        f"{body}\nlinalg.yield %r : f32\n}} -> tensor<4x6xf32>\nreturn %0 : tensor<4x6xf32>",
        "%a: tensor<4x6xf32>, %b: tensor<4x6xf32>",
    )


def position_read(index: str) -> str:
    """A function that reads %a at row %i and column %k, which is made of %j and %two."""
    return function(
        "%e = tensor.empty() : tensor<4x6xf32>\n%0 = linalg.generic {indexing_maps = "
        "[affine_map<(i, j) -> (i, j)>], iterator_types = "
        '["parallel", "parallel"]} outs(%e : tensor<4x6xf32>) {\n^bb0(%o: f32):\n'
        "%two = arith.constant 2 : index\n%i = linalg.index 0 : index\n"
        f"%j = linalg.index 1 : index\n{index}\n"
        "%r = tensor.extract %a[%i, %k] : tensor<4x6xf32>\nlinalg.yield %r : f32\n"
        "} -> tensor<4x6xf32>\nreturn %0 : tensor<4x6xf32>"
    )


ROWS = """func.func @rows(%t: tensor<9x16xf32>, %i: tensor<5xi64>) -> tensor<5x16xf32> {
%e = tensor.empty() : tensor<5x16xf32>
%0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
  iterator_types = ["parallel", "parallel"]} ins(%i : tensor<5xi64>) outs(%e : tensor<5x16xf32>) {
^bb0(%x: i64, %o: f32):
  %r = arith.index_cast %x : i64 to index
  %j = linalg.index 1 : index
  %two = arith.constant 2 : index
  %k = arith.divui %j, %two : index
  %v = tensor.extract %t[%r, %k] : tensor<9x16xf32>
  linalg.yield %v : f32
} -> tensor<5x16xf32>
return %0 : tensor<5x16xf32>
}"""


@pytest.mark.parametrize("text", [ROWS, position_read("%k = arith.floordivsi %j, %two : index")])
def test_quotients_and_data_as_indices(
    text: str, imported: Importer, backend: MLIRBackend, target: Target
) -> None:
    program = imported(text)
    (stage,) = program.workload.stages
    assert any(form.terms for read in stage.accesses for form in stage.forms(read))
    check_program(backend, BuildRequest(program.workload, program.program, None, target, 1))


LONG = "%v0 = arith.mulf %x, %x : f32\n" + "\n".join(
    f"%v{n + 1} = arith.mulf %v{n}, %v{n} : f32" for n in range(20)
)

REFUSALS = {
    "no text": ("hello world", r"not MLIR: program.mlir:1:1: .*'hello' is unknown"),
    "types": (
        function("return %a : tensor<4x6xf64>"),
        r"not MLIR: program.mlir:3:8: use of value '%a' expects different type",
    ),
    "unknown dialect": (
        function("%0 = foo.bar %a : tensor<4x6xf32>\nreturn %0 : tensor<4x6xf32>"),
        r"not MLIR: program.mlir:3:6: Dialect `foo' not found for custom op 'foo.bar'",
    ),
    "no function": ("module {}", r"has no function \(func.func\)"),
    "dynamic argument": (
        function("return %a : tensor<?x6xf32>", "%a: tensor<?x6xf32>", "tensor<?x6xf32>"),
        r"argument 0 of function @f has the dynamic shape tensor<\?x6xf32>",
    ),
    "dynamic inside": (
        function(
            "%0 = tensor.generate %n {\n^bb0(%i: index):\n%v = arith.constant 1.0 : f32\n"
            "tensor.yield %v : f32\n} : tensor<?xf32>\n"
            "%1 = tensor.cast %0 : tensor<?xf32> to tensor<4xf32>\n"
            "return %1 : tensor<4xf32>",
            "%a: tensor<4x6xf32>, %n: index",
            "tensor<4xf32>",
        ),
        r"operation tensor.generate is not supported at .*:3:6",
    ),
    "dynamic padding": (
        function(
            "%z = arith.constant 0.0 : f32\n%n = arith.constant 1 : index\n"
            "%0 = tensor.pad %a low[0, 0] high[%i, 0] {\n^bb0(%k: index, %l: index):\n"
            "tensor.yield %z : f32\n} : tensor<4x6xf32> to tensor<?x6xf32>\n"
            "%1 = tensor.cast %0 : tensor<?x6xf32> to tensor<5x6xf32>\n"
            "return %1 : tensor<5x6xf32>",
            "%a: tensor<4x6xf32>, %i: index",
            "tensor<5x6xf32>",
        ),
        r"operation tensor.pad at .*:5:6: its padding is dynamic",
    ),
    "buffers": (
        function("return", "%a: memref<4x6xf32>", ""),
        r"argument 0 of function @f is a buffer, memref<4x6xf32>: .* before bufferization",
    ),
    "element type": (
        function("return %a : tensor<4xf8E5M2>", "%a: tensor<4xf8E5M2>", "tensor<4xf8E5M2>"),
        r"argument 0 of function @f: element type f8E5M2 is not one of i1, i8, i32, i64, f16",
    ),
    "number": (
        function("return %a : tensor<4x6xf32>", "%a: tensor<4x6xf32>, %n: i16"),
        r"argument 1 of function @f: element type i16 is not one of",
    ),
    "sum of truth values": (
        ASSEMBLED["any"].text.replace("arith.ori", "arith.addi"),
        r"not a reduction of the form .*it yields the result of arith.addi",
    ),
    "unwritten": (
        ASSEMBLED["stacked"].text.replace("%e[1, 0, 0]", "%e[0, 0, 0]"),
        r"tensor.insert_slice at .*:5:6: it leaves elements of a tensor that was never written",
    ),
    "insertion with strides": (
        ASSEMBLED["inserted"].text.replace("[1, 2] [1, 3] [1, 1]", "[1, 2] [1, 3] [1, -1]"),
        r"tensor.insert_slice at .*:3:6: it inserts with strides \[1, -1\]",
    ),
    "part with a computed stride": (
        function(
            "%0 = tensor.extract_slice %a[0, 0] [4, 3] [1, %n] "
            ": tensor<4x6xf32> to tensor<4x3xf32>\nreturn %0 : tensor<4x3xf32>",
            "%a: tensor<4x6xf32>, %n: index",
            "tensor<4x3xf32>",
        ),
        r"operation tensor.extract_slice at .*:3:6: its sizes or strides are dynamic",
    ),
    "operation on a number": (
        ASSEMBLED["number"].text.replace(
            "%s = tensor.splat %x", "%y = math.tan %x : f32\n%s = tensor.splat %y"
        ),
        r"operation math.tan is not supported at .*:3:6",
    ),
    "nothing to do": (
        function("return %a : tensor<4x6xf32>"),
        r"no linalg operation: nothing can be tuned",
    ),
    "nothing returned": (
        function("%0 = arith.addf %a, %a : tensor<4x6xf32>\nreturn", result=""),
        r"no linalg operation: nothing can be tuned",
    ),
    "unsupported operation": (
        function(
            "%0 = tensor.bitcast %a : tensor<4x6xf32> to tensor<4x6xi32>\n"
            "return %0 : tensor<4x6xi32>",
            result="tensor<4x6xi32>",
        ),
        r"operation tensor.bitcast is not supported at program.mlir:3:6; supported are",
    ),
    "branches": (
        function(
            "%t = arith.constant true\ncf.br ^one(%a : tensor<4x6xf32>)\n"
            "^one(%x: tensor<4x6xf32>):\n%0 = arith.negf %x : tensor<4x6xf32>\n"
            "cf.br ^one(%0 : tensor<4x6xf32>)"
        ),
        r"function @f branches: it has 2 blocks",
    ),
    "many values": (
        function(
            "%c = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>\n"
            "%0 = arith.addf %a, %c : tensor<2xf32>\nreturn %0 : tensor<2xf32>",
            "%a: tensor<2xf32>",
            "tensor<2xf32>",
        ),
        r"a constant of type tensor<2xf32> has many values; make it an argument",
    ),
    "nothing read": (
        function(
            "%e = tensor.empty() : tensor<4x6xf32>\n%0 = arith.addf %a, %e : tensor<4x6xf32>\n"
            "return %0 : tensor<4x6xf32>"
        ),
        r"operation linalg.generic at .*:4:6: it reads a tensor that was never written",
    ),
    "operation in a body": (
        elementwise_generic("%r = math.tan %x : f32"),
        r"linalg.generic at .*:3:6: operation math.tan of f32 in its body is not supported",
    ),
    "type in a body": (
        elementwise_generic(
            "%n = arith.truncf %x : f32 to f8E5M2\n%r = arith.extf %n : f8E5M2 to f32"
        ),
        r"element type f8E5M2 is not one of",
    ),
    "unsigned": (
        elementwise_generic(
            "%n = arith.fptosi %x : f32 to i32\n%r = arith.uitofp %n : i32 to f32"
        ),
        r"operation arith.uitofp in its body takes i32 for an unsigned number",
    ),
    "long": (
        elementwise_generic(LONG + "\n%r = arith.negf %v20 : f32"),
        r"its body has more than 2000 operations",
    ),
    "long by expansion": (
        elementwise_generic(
            "".join(f"%v{n + 1} = math.log1p %v{n} : f32\n" for n in range(40)).replace(
                "%v0 ", "%x "
            )
            + "%r = arith.negf %v40 : f32"
        ),
        r"its body has more than 2000 operations",
    ),
    "combination": (
        elementwise_generic(
            "%s = arith.subf %o, %x : f32\n%r = arith.mulf %s, %x : f32",
            kinds='"parallel", "parallel", "reduction"',
            maps="affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (i, j)>",
        ),
        r"not a reduction of the form output = output .* it yields the result of arith.mulf",
    ),
    "write": (
        elementwise_generic(
            "%r = arith.negf %x : f32",
            maps="affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, 5 - j)>",
        ),
        r"index 1 of its write is -d1 \+ 5, not a parallel iterator of its own",
    ),
    "read outside": (
        position_read("%k = arith.addi %j, %two : index"),
        r"index 1 of its read of 'arg0' runs from 2 to 7, of 6 elements",
    ),
    "part outside": (
        PROGRAMS["part"].text.replace("[1, 2]", "[1, -1]"),
        r"tensor.extract_slice at program.mlir:3:6: it reads from 0 to -2, of 6 elements",
    ),
    "beside": (
        elementwise_generic(
            "%k = linalg.index 0 : index\n%n = arith.fptosi %x : f32 to i64\n"
            "%six = arith.constant 6 : index\n%m = arith.index_cast %n : i64 to index\n"
            "%p = arith.addi %m, %six : index\n"
            "%r = tensor.extract %b[%k, %p] : tensor<4x6xf32>"
        ),
        r"reads beside 'arg1', also where all indices given are 0",
    ),
}


@pytest.mark.parametrize(("text", "reason"), REFUSALS.values(), ids=REFUSALS.keys())
def test_refusals(
    text: str, reason: str, imported: Importer, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnsupportedWorkload, match=reason):
        imported(text)
    assert capfd.readouterr() == ("", "")


def test_a_file_that_cannot_be_read(backend: MLIRBackend, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"cannot read '.*none.mlir': No such file"):
        backend.import_program(ProgramFile(tmp_path / "none.mlir", "mlir"))
    binary = tmp_path / "binary.mlir"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidValueError, match=r"cannot read '.*binary.mlir': it is not text"):
        backend.import_program(ProgramFile(binary, "mlir"))


# Not every release of MLIR survives this permutation.
FATAL = """
func.func @f(%a: tensor<4x6xf32>) -> (tensor<6x4xf32>) {
  %t = tensor.empty() : tensor<6x4xf32>
  %0 = linalg.transpose ins(%a : tensor<4x6xf32>) outs(%t : tensor<6x4xf32>) permutation = [1) 0]
  return %0 : tensor<6x4xf32>
}
"""


def test_a_text_that_ends_the_parser(backend: MLIRBackend, tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(FATAL)
    with pytest.raises(UnsupportedWorkload, match=r"program.mlir cannot be read: the process"):
        backend.import_program(ProgramFile(path, "mlir"))


def test_a_parser_that_does_not_end(
    backend: MLIRBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAMS["matmul"].text)
    monkeypatch.setattr(importer, "_SECONDS", 0.0)
    with pytest.raises(
        UnsupportedWorkload, match=r"program.mlir cannot be read: .*: no answer in"
    ):
        backend.import_program(ProgramFile(path, "mlir"))


def test_the_documentation_lists_what_is_understood() -> None:
    page = Path(__file__).resolve().parents[4] / "docs" / "mlir.md"
    cells = [line.strip("| ").split(" | ") for line in page.read_text().splitlines()]
    listed = {row[0]: re.findall(r"`([^`]+)`", row[1]) for row in cells if len(row) == 2}
    assert listed["element types"] == list(DTYPES)
    assert listed["functions"] == ["linalg", *BESIDE_LINALG]
    assert listed["bodies"] == sorted(BODY_OPERATIONS)

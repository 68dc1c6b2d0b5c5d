"""ONNX's own test suite, run on what the reader makes of its models.

A test is excluded by rule, refused with the operator and the reason, passed, or wrong; a failure
of any other kind is a crash. Inputs that decide shapes hold what the test gives them always.

    python tests/support/onnx_suite.py [--only TEXT] [--quiet] [--compiled]
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from attrs import frozen
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

from autotune.errors import AutotuneError
from autotune.ir.element_types import element_type
from autotune.networks.graph import Graph, evaluate
from autotune.networks.plan.cpu_network import compile_network
from autotune.networks.readers.onnx import OnnxNetwork, read_onnx
from autotune.targets import detect_cpu

Run = Callable[[Graph, Mapping[str, Any]], dict[str, Any]]

_KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
_RANDOM = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)


@frozen(eq=False)
class Case:
    """A test of the suite: its model, and what that makes of some inputs."""

    name: str
    model: Any
    data: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]
    rtol: float
    atol: float


@frozen
class Verdict:
    """Outcome of a test: ``passed``, ``refused``, ``wrong`` or ``crashed``."""

    kind: str
    reason: str = ""


@cache
def cases(every: int = 1) -> tuple[Case, ...]:
    """Sample of one in so many tests of the suite, the light models among them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [it for kind in _KINDS for it in load_model_tests(kind=kind)]
    return tuple(map(_case, found[::every]))


def _case(test: Any) -> Case:
    if test.model is not None:
        return Case(test.name, test.model, tuple(test.data_sets), test.rtol, test.atol)
    if test.model_dir is not None:
        folder = Path(test.model_dir)
        model = onnx.load(folder / "model.onnx")
        data = tuple(_stored_data(it) for it in sorted(folder.glob("test_data_set_*")))
        return Case(test.name, model, data, test.rtol, test.atol)
    path = Path(onnx.__file__).parent.parent / test.url
    model = onnx.load(path)
    wanted = _tensor(path.with_name(f"{path.stem}_output_0.pb"))
    weights = {it.name for it in model.graph.initializer}
    image = next(it for it in model.graph.input if it.name not in weights)
    shape = [it.dim_value or 1 for it in image.type.tensor_type.shape.dim]
    count = int(np.prod(shape))
    given = (np.arange(count).reshape(shape) / count).astype(np.float32)
    return Case(test.name, model, (((given,), (wanted,)),), test.rtol, test.atol)


def _stored_data(folder: Path) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    def read(what: str) -> tuple[Any, ...]:
        count = len(list(folder.glob(f"{what}_*.pb")))
        return tuple(_tensor(folder / f"{what}_{number}.pb") for number in range(count))

    return read("input"), read("output")


def _tensor(path: Path) -> Any:
    tensor = TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
        return numpy_helper.to_array(tensor)
    except Exception:  # what is no tensor is excluded by the types of the model
        return None


def excluded(model: Any) -> str:
    """Say why a test is none of ours; "" where it is one."""
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            return "sequences" if kind == "sequence_type" else "optionals"
        number = value.type.tensor_type.elem_type
        name = TensorProto.DataType.Name(number)
        if name == "STRING":
            return "strings"
        if "8E" in name or "4E" in name or name[-1:] in ("2", "4") and name[:-1] in _SHORT:
            return "floats of 8 bits and less, integers of 4 bits and less"
    if any(node.op_type in _RANDOM for node in model.graph.node):
        return "random numbers"
    if any(it.domain == "ai.onnx.preview.training" for it in model.opset_import):
        return "training"
    return ""


_SHORT = ("INT", "UINT")


def compiled(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Results of machine code of this processor."""
    return compile_network(graph, {}, detect_cpu(), 1).run(inputs)


def judge(case: Case, run: Run = evaluate) -> Verdict:
    """Read a test's model for each of its data, and compare what ``run`` computes."""
    for given, wanted in case.data:
        inputs, expected = map(_arrays, (given, wanted))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                network = read_onnx(case.model, inputs)
                found = run(network.graph, _feeds(network, inputs))
        except AutotuneError as error:
            if "\n" in str(error) or _is_of_others(error):
                return Verdict("crashed", traceback.format_exc())
            return Verdict("refused", str(error))
        except Exception:
            return Verdict("crashed", traceback.format_exc())
        reason = _difference(case, _valid(network, found), expected, network)
        if reason:
            return Verdict("wrong", reason)
    return Verdict("passed")


def _is_of_others(error: BaseException | None) -> bool:
    """Tell if a foreign exception is behind an error: the models of the suite are well-formed."""
    while isinstance(error, AutotuneError):
        error = error.__cause__
    return error is not None


def _arrays(tensors: Sequence[Any]) -> list[Any]:
    return [
        numpy_helper.to_array(it) if isinstance(it, TensorProto) else np.asarray(it)
        for it in tensors
    ]


def _feeds(network: OnnxNetwork, arrays: Sequence[Any]) -> dict[str, Any]:
    weights = {it.name for it in network.file.model.graph.initializer}
    names = [it.name for it in network.file.model.graph.input if it.name not in weights]
    given = dict(zip(names, arrays, strict=True))
    return {
        it.name: given[it.name].view(np.uint16) if it.dtype == "bfloat16" else given[it.name]
        for it in network.graph.inputs
    }


def _valid(network: OnnxNetwork, found: Mapping[str, Any]) -> list[Any]:
    """The outputs of the model, each as long as the network says that it is."""
    cut = {it.name: found[it.name] for it in network.file.model.graph.output}
    for name, axis in network.counted.items():
        cut[name] = np.take(cut[name], range(int(found[f"{name} (count)"])), axis)
    return list(cut.values())


def _difference(
    case: Case, found: Sequence[Any], expected: Sequence[Any], network: OnnxNetwork
) -> str:
    """The difference; "" where there is none."""
    outputs = network.graph.outputs
    values = [outputs[it.name] for it in network.file.model.graph.output]
    for value, got, want in zip(values, found, expected, strict=True):
        dtype = str(want.dtype)
        if value.dtype != dtype or got.shape != want.shape:
            return f"{value.dtype}{list(got.shape)} and not {dtype}{list(want.shape)}"
        atol = max(case.atol, _noise(value.dtype, want))
        try:
            np.testing.assert_allclose(
                _numbers(got, dtype), _numbers(want, dtype), rtol=case.rtol, atol=atol
            )
        except AssertionError as error:
            return " ".join(str(error).split())[:300]
    return ""


def _noise(dtype: str, wanted: Any) -> float:
    """Errors of the suite's numbers, computed in their own type: a few units of the last
    place of the largest one."""
    element = element_type(dtype)
    if not element.is_float:
        return 0.0
    numbers = np.abs(np.asarray(wanted, np.float64))
    return 4 * element.eps * float(numbers[np.isfinite(numbers)].max(initial=0.0))


def _numbers(array: Any, dtype: str) -> Any:
    if dtype == "bfloat16":
        return element_type(dtype).numbers(array.view(np.uint16))
    return array


def run_all(
    only: str, run: Run, show: Callable[[str, Verdict], None]
) -> tuple[Counter[str], Counter[str]]:
    """Verdicts by kind and exclusions by reason, of the tests whose name has a text in it."""
    verdicts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for case in cases():
        if only not in case.name:
            continue
        reason = excluded(case.model)
        if reason:
            reasons[reason] += 1
            continue
        verdict = judge(case, run)
        verdicts[verdict.kind] += 1
        show(case.name, verdict)
    return verdicts, reasons


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="tests whose names have this in it")
    parser.add_argument("--quiet", action="store_true", help="counts only")
    parser.add_argument("--compiled", action="store_true", help="by machine code, not by numpy")
    asked = parser.parse_args(arguments)
    start = time.perf_counter()
    refused: Counter[str] = Counter()

    def show(name: str, verdict: Verdict) -> None:
        if verdict.kind == "refused":
            refused[_operator(verdict.reason)] += 1
        if verdict.kind != "passed" and not asked.quiet:
            print(f"{name}: {verdict.kind}: {verdict.reason}", flush=True)

    way = compiled if asked.compiled else evaluate
    verdicts, reasons = run_all(asked.only, way, show)
    total = sum(verdicts.values())
    print(f"{total} tests: " + ", ".join(f"{n} {kind}" for kind, n in verdicts.most_common()))
    print("refused: " + ", ".join(f"{name} {n}" for name, n in refused.most_common()))
    print("excluded: " + ", ".join(f"{name} {n}" for name, n in reasons.most_common()))
    print(f"{verdicts['passed'] / max(1, total):.1%} in {time.perf_counter() - start:.0f} s")
    return int(bool(verdicts["wrong"] or verdicts["crashed"]))


def _operator(reason: str) -> str:
    parts = reason.split(": ")
    return parts[1].split(" ")[0] if len(parts) > 1 else reason


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

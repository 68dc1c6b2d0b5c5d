"""Torch's own samples of its operators (``OpInfo``), run on what the reader makes of them.

A sample is excluded by rule, refused with the operator and the reason, passed, or wrong; a failure
of any other kind is a crash. What torch computes is right; of halves also what it computes of the
same numbers in double precision.

    python tests/support/torch_opinfo.py [--only TEXT] [--all] [--most N] [--every N] [--quiet]
        [--json FILE]

It is for a process of its own: what torch tests itself with forbids, when it is imported, that its
flags are set.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attrs import frozen
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from autotune.errors import AutotuneError
from autotune.ir.element_types import element_type
from autotune.networks.graph import evaluate
from autotune.networks.readers.torch import TorchNetwork, read_torch

__all__ = ["DTYPES", "Case", "Verdict", "cases", "excluded", "judge", "op_db"]

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool)

# Functions that are operators of the core by another name.
_FUNCTIONS = {
    **{f"conv{at}d": "convolution" for at in (1, 2, 3)},
    **{f"conv_transpose{at}d": "convolution" for at in (1, 2, 3)},
    **{f"adaptive_avg_pool{at}d": "_adaptive_avg_pool2d" for at in (1, 2, 3)},
    **{f"avg_pool{at}d": "avg_pool2d" for at in (1, 2, 3)},
    **{f"max_pool{at}d": "max_pool2d_with_indices" for at in (1, 2, 3)},
    "batch_norm": "_native_batch_norm_legit",
    "elu": "elu",
    "embedding": "embedding",
    "embedding_bag": "_embedding_bag",
    "gelu": "gelu",
    "grid_sample": "grid_sampler_2d",
    "group_norm": "native_group_norm",
    "hardtanh": "hardtanh",
    "interpolate": "upsample_bilinear2d",
    "layer_norm": "native_layer_norm",
    "leaky_relu": "leaky_relu",
    "linear": "addmm",
    "log_softmax": "_log_softmax",
    "pad": "reflection_pad1d",
    "pdist": "_pdist_forward",
    "relu": "relu",
    "scaled_dot_product_attention": "bmm",
    "softmax": "_softmax",
    "upsample_bilinear": "upsample_bilinear2d",
    "upsample_nearest": "upsample_nearest2d",
}
_METHODS = {"__getitem__": "index", "cdist": "_cdist_forward", "item": "_local_scalar_dense"}
_RANDOM = (
    "bernoulli",
    "cauchy",
    "dropout",
    "empty",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "normal",
    "rand",
    "rrelu",
    "uniform",
    "fractional_max_pool",
)
# Which of equal elements they choose is not said.
_OF_TIES = ("argsort", "kthvalue", "median", "mode", "nanmedian", "sort", "topk")


@frozen(eq=False)
class Case:
    """A sample of an operator.

    Attributes:
        name: Of the operator, the type, and the number of the sample.
        function: What is called.
        inputs: Tensors, in the order in which they are in ``call``.
        call: The first argument, the others, and those by name; places in ``inputs`` of tensors.
        chooses: Whether places that it returns may be those of equal elements.
    """

    name: str
    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    call: Any
    chooses: bool

    def run(self, *tensors: torch.Tensor) -> Any:
        """Results of the operator on other tensors."""
        leaves, form = self.call
        given = [tensors[it.at] if isinstance(it, _Place) else it for it in leaves]
        first, others, named = tree_unflatten(given, form)
        return self.function(first, *others, **named)


@frozen
class _Place:
    at: int


@frozen
class Verdict:
    """Outcome of a sample: ``passed``, ``refused``, ``wrong`` or ``crashed``."""

    kind: str
    reason: str = ""


@cache
def _core() -> frozenset[str]:
    """Names of the operators of core ATen."""
    names = set()
    for packet in (getattr(torch.ops.aten, it) for it in dir(torch.ops.aten)):
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            if torch.Tag.core in getattr(packet, overload).tags:
                names.add(packet.__name__)
    return frozenset(names)


def _is_core(op: Any) -> bool:
    name = op.name.removeprefix("nn.functional.")
    if op.name in _METHODS:
        return _METHODS[op.name] in _core()
    if op.name != name:
        return _FUNCTIONS.get(name) in _core()
    return op.name in _core() or op.aten_name in _core()


def excluded(op: Any) -> str:
    """Say why an operator is none of ours; "" where it is one."""
    name = op.name.removeprefix("nn.functional.")
    if any(map(name.startswith, _RANDOM)) or "dropout" in name:
        return "random numbers"
    if name.startswith(("fft.", "jiterator", "sparse.", "linalg.eig", "polar")):
        return "complex and sparse numbers"
    return ""


def cases(only: str = "", whole: bool = False, most: int = 1000, every: int = 1) -> Iterator[Case]:
    """Samples of the operators of core ATen.

    Args:
        only: A text that names have in them.
        whole: Of all operators that torch has samples of.
        most: How many samples there are at most of an operator and type.
        every: Of how many pairs of an operator and a type one is taken.
    """
    for op, name, dtype in islice(_pairs(only, whole), 0, None, every):
        yield from _cases(op, name, dtype, most)


def _pairs(only: str, whole: bool) -> Iterator[tuple[Any, str, torch.dtype]]:
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        if only not in name or excluded(op) or not (whole or _is_core(op)):
            continue
        yield from ((op, name, it) for it in DTYPES if op.supports_dtype(it, "cpu"))


def _cases(op: Any, name: str, dtype: torch.dtype, most: int) -> Iterator[Case]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(op.sample_inputs("cpu", dtype))
    kind = str(dtype).removeprefix("torch.")
    chooses = op.name.startswith(_OF_TIES)
    step = max(1, -(-len(samples) // most))
    for number, sample in enumerate(samples[::step]):
        yield _case(f"{name} {kind} {number * step}", op.op, sample, chooses)
    is_of_elements = isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo, ReductionOpInfo))
    if samples and dtype.is_floating_point and (is_of_elements or op.name in _WITH_SPECIALS):
        yield _case(f"{name} {kind} specials", op.op, _with_specials(samples[0]), chooses)


_WITH_SPECIALS = (
    *("aminmax", "clamp", "cumsum", "max", "min", "softmax", "sort", "where"),
    *(f"nn.functional.max_pool{at}d" for at in (1, 2, 3)),
)
_SPECIALS = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 2.5, -1.5)


def _with_specials(sample: Any) -> Any:
    """A sample with numbers that functions treat apart."""

    def changed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.dtype.is_floating_point:
            return leaf
        found = leaf.detach().clone().contiguous()
        flat = found.view(-1)
        for at in range(0, flat.numel(), 2):
            flat[at] = _SPECIALS[at // 2 % len(_SPECIALS)]
        return found

    sample.input = tree_map(changed, sample.input)
    return sample


def _case(name: str, function: Callable[..., Any], sample: Any, chooses: bool) -> Case:
    leaves, form = tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    inputs: list[torch.Tensor] = []
    given: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            given.append(_Place(len(inputs)))
            inputs.append(leaf.detach())
        else:
            given.append(leaf)
    return Case(name, function, tuple(inputs), (given, form), chooses)


class _Module(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.case.run(*tensors)


def judge(case: Case) -> Verdict:
    """Read a sample's operator, and compare."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = _tensors(case.run(*(it.clone() for it in case.inputs)))
        except Exception as error:
            return Verdict("excluded", f"torch refuses it: {error}")
        if any(str(it.dtype).startswith("torch.complex") for it in (*wanted, *case.inputs)):
            return Verdict("excluded", "complex numbers")
        if not wanted or not case.inputs:
            return Verdict("excluded", "no tensors")
        try:
            network = read_torch(_Module(case).eval(), case.inputs)
            found = evaluate(network.graph, _feeds(network, case.inputs))
        except AutotuneError as error:
            if str(error).startswith("torch.export cannot trace"):
                return Verdict("excluded", str(error))
            if "\n" in str(error) or _is_of_others(error):
                return Verdict("crashed", traceback.format_exc())
            return Verdict("refused", str(error))
        except Exception:
            return Verdict("crashed", traceback.format_exc())
        reason = _difference(list(found.values()), wanted, network, case)
        if reason and any(it.dtype in (torch.float16, torch.bfloat16) for it in wanted):
            reason = _difference(list(found.values()), _precise(case, wanted), network, case)
    return Verdict("wrong", reason) if reason else Verdict("passed")


def _tensors(found: Any) -> list[torch.Tensor]:
    return [it.detach() for it in tree_leaves(found) if isinstance(it, torch.Tensor)]


def _precise(case: Case, wanted: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Results of torch on the same numbers in double precision, rounded at the end."""
    halves = (torch.float16, torch.bfloat16)
    wide = [it.double() if it.dtype in halves else it for it in case.inputs]
    try:
        found = _tensors(case.run(*wide))
    except Exception:
        return list(wanted)
    return [it.to(want.dtype) for it, want in zip(found, wanted, strict=True)]


def _is_of_others(error: BaseException | None) -> bool:
    """Tell whether an error of our own code is behind one that says so in a line."""
    while isinstance(error, AutotuneError):
        error = error.__cause__
    return isinstance(error, (ArithmeticError, LookupError, TypeError, ValueError))


def _feeds(network: TorchNetwork, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    names = iter(network.graph.inputs)
    # Inputs without elements are none of the graph.
    left = [it for it in tensors if it.numel()]
    return {value.name: _array(it) for value, it in zip(names, left, strict=True)}


def _array(tensor: torch.Tensor) -> Any:
    plain = tensor.detach().contiguous()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view(np.uint16)
    return plain.numpy()


def _difference(
    found: Sequence[Any], wanted: Sequence[torch.Tensor], network: TorchNetwork, case: Case
) -> str:
    """The difference; "" where there is none."""
    outputs = list(network.graph.outputs.values())[len(network.writes) :]
    arrays = found[len(network.writes) :]
    for value, got, want in zip(outputs, arrays, wanted, strict=True):
        dtype = str(want.dtype).removeprefix("torch.")
        if value.dtype != dtype or got.shape != tuple(want.shape):
            return f"{value.dtype}{list(got.shape)} and not {dtype}{list(want.shape)}"
        if dtype == "int64" and case.chooses:
            continue
        element = element_type(dtype)
        one, other = (element.numbers(it) for it in (got, _array(want)))
        rtol, atol = _bounds(dtype, other)
        try:
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
        except AssertionError as error:
            return " ".join(str(error).split())[:300]
    return ""


def _bounds(dtype: str, wanted: Any) -> tuple[float, float]:
    """A few units of the last place of an element, and of the largest one."""
    element = element_type(dtype)
    if not element.is_float:
        return 0.0, 0.0
    numbers = np.abs(np.asarray(wanted, np.float64))
    largest = float(numbers[np.isfinite(numbers)].max(initial=0.0))
    share = 64 if dtype in ("float32", "float64") else 3
    return share * element.eps, min(share, 16) * element.eps * largest


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="operators whose names have this in it")
    parser.add_argument("--all", action="store_true", help="all operators, not those of the core")
    parser.add_argument("--most", type=int, default=1000, help="samples of an operator and type")
    parser.add_argument("--every", type=int, default=1, help="one of so many operators and types")
    parser.add_argument("--quiet", action="store_true", help="counts only")
    parser.add_argument("--json", type=Path, help="where counts, and the rules, are written")
    asked = parser.parse_args(arguments)
    start = time.perf_counter()
    verdicts: Counter[str] = Counter()
    table: dict[str, Counter[str]] = {}
    refused: Counter[str] = Counter()
    passed: set[str] = set()
    for case in cases(asked.only, asked.all, asked.most, asked.every):
        verdict = judge(case)
        verdicts[verdict.kind] += 1
        if verdict.kind == "passed":
            passed.add(case.name.split(" ")[0])
        table.setdefault(case.name.split(" ")[1], Counter())[verdict.kind] += 1
        if verdict.kind == "refused":
            refused[case.name.split(" ")[0]] += 1
        if verdict.kind not in ("passed", "excluded") and not asked.quiet:
            print(f"{case.name}: {verdict.kind}: {verdict.reason}", flush=True)
    total = sum(verdicts.values()) - verdicts["excluded"]
    for dtype, kinds in table.items():
        print(dtype, dict(kinds))
    print(f"{total} samples: " + ", ".join(f"{n} {kind}" for kind, n in verdicts.most_common()))
    print("refused: " + ", ".join(f"{name} {n}" for name, n in refused.most_common()))
    print(f"{verdicts['passed'] / max(1, total):.1%} in {time.perf_counter() - start:.0f} s")
    if asked.json is not None:
        rules = {it.name: excluded(it) for it in op_db}
        found = {"verdicts": verdicts, "rules": rules, "operators": sorted(passed)}
        asked.json.write_text(json.dumps(found))
    return int(bool(verdicts["wrong"] or verdicts["crashed"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

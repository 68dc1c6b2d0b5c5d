"""Convolutions that no builder makes: with channels first, and in groups."""

from __future__ import annotations

from attrs import evolve
from written import written

from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload


def convolution(
    *,
    h: int,
    w: int,
    ci: int,
    co: int,
    n: int = 1,
    kernel: int = 3,
    stride: int = 1,
    pad: int = 0,
    groups: int = 1,
    bias: int = 0,
    last: int = 0,
    dtype: str = "float16",
) -> Workload:
    """A convolution with channels first and OIHW weights; with ``last``, as builders have them.

    Sums are of float32 or int32. A bias is followed by relu.
    """
    parameters = dict(locals())
    is_float = element_type(dtype).is_float
    total, zero = ("float32", "0.0") if is_float else ("int32", "0")
    placed = "{0}, {2}, {3}, {1}" if last else "{0}, {1}, {2}, {3}"
    weights, reduced = (
        ("kh, kw, ci, co", "kh, kw, ci") if last else ("co, ci, kh, kw", "ci, kh, kw")
    )
    channel = "ci" if groups == 1 else "co // share * ci_of_group + ci"
    window = placed.format("n", channel, "ho * stride + kh", "wo * stride + kw")
    factors = [f"{'P' if pad else 'X'}[{window}]", f"W[{weights}]"]
    if dtype != total:
        factors = [f"{total}({factor})" for factor in factors]
    result = placed.format("n", "co", "ho", "wo")
    inputs = f"X[{placed.format('n', 'channels', 'h', 'w')}]: {dtype}, W[{weights}]: {dtype}"
    stages = [f"Y[{result}; {reduced}]: {total} += {factors[0]} * {factors[1]}"]
    if pad:
        axes = placed.format("np:n", "cp:channels", "hp:h + 2 * pad", "wp:w + 2 * pad")
        inner = f"X[{placed.format('np', 'cp', 'hp - pad', 'wp - pad')}]"
        for name, extent in (("hp", "h"), ("wp", "w")):
            inner = f"({inner} if {name} >= pad and {name} < pad + {extent} else {zero})"
        stages.insert(0, f"P[{axes}]: {dtype} = {inner}")
    if bias:
        inputs += f", B[co]: {total}"
        stages.append(f"R[{result}]: {total} = max(Y[{result}] + B[co], {zero})")
    size = [(extent + 2 * pad - kernel) // stride + 1 for extent in (h, w)]
    values = {"n": n, "h": h, "w": w, "channels": ci, "ci": ci // groups, "co": co}
    values |= {"ci_of_group": ci // groups, "share": co // groups, "stride": stride, "pad": pad}
    values |= {"kh": kernel, "kw": kernel, "ho": size[0], "wo": size[1]}
    made = written(inputs, *stages, name="convolution", **values)
    return evolve(made, parameters=parameters)

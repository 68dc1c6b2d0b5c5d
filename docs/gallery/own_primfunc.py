"""Tune a PrimFunc of your own: its steps are replayed on that very function."""

import numpy as np
from tvm import te

import autotune

x = te.placeholder((128, 256), name="X")
w = te.placeholder((256, 128), name="W")
k = te.reduce_axis((0, 256), name="k")
product = te.compute((128, 128), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="P")
gelu = te.compute(
    (128, 128), lambda i, j: product[i, j] / (1 + te.exp(-1.702 * product[i, j])), name="G"
)

result = autotune.tune(te.create_prim_func([x, w, gelu]), trials=16, database="own.db")
print(f"{result.best.latency * 1e6:.1f} us, {result.speedup:.1f} times the untuned program")

a, b = (np.random.default_rng(0).random(s, np.float32) for s in ((128, 256), (256, 128)))
np.testing.assert_allclose(
    result.build()(a, b), (a @ b) / (1 + np.exp(-1.702 * (a @ b))), rtol=1e-3, atol=1e-3
)

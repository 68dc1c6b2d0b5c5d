"""Small workloads of networks that read at quotients, at remainders, and where data says."""

from __future__ import annotations

from divided_reductions import (
    adaptive_pooling,
    fractional_convolution,
    grouped_convolution,
    multiplied_channels,
    shared_factor,
)
from written import written

from autotune.ir.workloads import Workload


def embedding(index: str = "int64") -> Workload:
    return written(
        f"T[50, 32], I[7]: {index}", "Y[i:7, j:32] = T[I[i], j] + T[i, j]", name="embedding"
    )


def masked_softmax() -> Workload:
    """Build the softmax of an attention: rows without any true value are zero."""
    return written(
        "X[i, j], M[i, j]: bool",
        "A[i, j] = X[i, j] if M[i, j] else -1e9",
        "H[i; j] max= A[i, j]",
        "E[i, j] = exp(A[i, j] - H[i])",
        "S[i; j] += E[i, j]",
        "L[i, j]: bool = A[i, j] != float32(-1e9)",
        "N[i, j]: bool = not L[i, j]",
        "Y[i, j] = 0.0 if N[i, j] else E[i, j] / S[i]",
        name="masked softmax",
        i=6,
        j=32,
    )


def embedding_bag(bags: int = 7, most: int = 5, width: int = 32) -> Workload:
    """Weighted sums of rows of a table."""
    return written(
        "T[50, j], I[i, k]: int64, W[i, k]",
        "Y[i, j; k] += T[I[i, k], j] * W[i, k]",
        name="embedding bag",
        i=bags,
        j=width,
        k=most,
    )


def gathered_product(rows: int = 6, columns: int = 23, depth: int = 16) -> Workload:
    """Rows of a table times the transpose of a matrix."""
    return written(
        "T[50, k], I[i]: int32, W[j, k]",
        "Y[i, j; k] += T[I[i], k] * W[j, k]",
        name="gathered product",
        i=rows,
        j=columns,
        k=depth,
    )


def chosen_elements(rows: int = 5, columns: int = 21) -> Workload:
    """Elements of a table where data says, of places that are chosen; 0 elsewhere."""
    return written(
        "T[i, 50], I[i, j]: int64, X[i, j]",
        "Y[i, j] = T[i, I[i, j]] if 0.0 < X[i, j] else 0.0",
        name="chosen elements",
        i=rows,
        j=columns,
    )


_EVEN = "D[i:4, j:7, k:15] = X[i, j // 2, k // 2] if j % 2 == 0 and k % 2 == 0 else 0.0"
_INSIDE = "j >= 1 and j < 8 and k >= 1 and k < 16"

INDEXED_WORKLOADS = (
    written(
        "X[4, 12, 16]",
        "A[i:4, j:12, k:16] = exp(X[i, j, k])",
        "Y[i:12, j:64] = -A[j // 16, i, j % 16]",
        name="merge heads",
    ),
    written("X[3, 32], Z[3, 32]", "Y[i:6, j:32] = X[i // 2, j] * Z[i % 3, j]", name="repeat"),
    written("X[4, 5, 16]", "Y[i:10, j:32] = X[i % 2 * 2 + j % 2, i // 2, j // 2]", name="shuffle"),
    # A convolution of stride 2, transposed: data is dilated, padded, and summed over windows.
    written(
        "X[4, 4, 8], W[4, 8, 3, 3]",
        _EVEN,
        f"P[i:4, j:9, k:17] = D[i, j - 1, k - 1] if {_INSIDE} else 0.0",
        "Y[c:8, i:7, j:15; k:4, a:3, b:3] += P[k, i + a, j + b] * W[k, c, a, b]",
        name="transposed",
    ),
    embedding(),
    embedding("int32"),
    # A table whose elements are read where data says, computed as the indices are.
    written(
        "T[50, 32], I[7]: int32",
        "U[i:50, j:32] = -T[i, j]",
        "K[i:7]: int32 = I[i] + 3 if I[i] < 5 else I[i]",
        "Y[i:7, j:32] = exp(U[K[i], j])",
        name="computed table",
    ),
    # Neighbours in a vector read anywhere.
    written("T[50], I[7, 64]: int32", "Y[i:7, j:64] = T[I[i, j]]", name="every element"),
    written("T[50, 32], S[]: int64", "Y[i:32] = T[S[()], i]", name="row"),
    # Rows at positions that are computed from an axis as a float.
    written("X[6, 32]", "Y[i:12, j:32] = X[int32(floor(float32(i) * 0.5)), j]", name="nearest"),
    written("X[]", "U[] = exp(X[()])", "Y[] = U[()] + U[()]", name="number"),
    masked_softmax(),
    written(
        "M[6, 32]: bool, N[6, 32]: bool",
        "B[i:6, j:32]: bool = M[i, j] and not N[i, j]",
        "Y[i:6, j:32]: bool = B[i, j] or M[i, j] != N[i, j]",
        name="masks",
    ),
    grouped_convolution(),
    multiplied_channels(),
    fractional_convolution(),
    adaptive_pooling(),
    shared_factor(),
    embedding_bag(),
    gathered_product(),
)

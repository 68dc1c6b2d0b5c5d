"""Small networks that share a task, to be tuned by real processes; layers are compiled."""

from __future__ import annotations

from autotune.ir.workloads import Workload
from autotune.ir.workloads.builders import elementwise, gemm
from autotune.testing.reference_backend import SIMULATED_NATIVE, SimulatedNativeBackend
from autotune.testing.reference_frontend import ReferenceFrontend, ReferenceLayer, ReferenceModel

_PRODUCT = gemm(m=16, n=16, k=16)


class NativeFrontend(ReferenceFrontend):
    """Reads a reference model, the layers of which are compiled."""

    name = "native-reference"
    backend_type = SimulatedNativeBackend
    backend = SIMULATED_NATIVE


def first() -> ReferenceModel:
    """Two equal products, and a point-wise layer."""
    return _model("first", outer=_PRODUCT, scale=elementwise(m=16, n=16), inner=_PRODUCT)


def second() -> ReferenceModel:
    """The same product, and another one."""
    return _model("second", outer=_PRODUCT, narrow=gemm(m=16, n=8, k=16))


def _model(name: str, **layers: Workload) -> ReferenceModel:
    # An empty script is the one of the environment.
    made = tuple(ReferenceLayer(layer, workload, "") for layer, workload in layers.items())
    return ReferenceModel(name, made)


def tune_model(name: str, trials: int) -> tuple[str, ...]:
    """``python ...`` that tunes one of them into ``records.db``."""
    return (
        *("-m", "autotune", "tune-model", f"reference_models:{name}", "--threads", "1"),
        *("--frontend", "reference_models:NativeFrontend", "--database", "records.db"),
        *("--round-size", "4", "--trials", str(trials), "--quiet"),
    )

"""The parts that this distribution registers."""

from __future__ import annotations

from autotune import hookimpl
from autotune.plugins import PluginSpec

AUTOTUNE_API_VERSION = 4


@hookimpl
def autotune_parts() -> list[PluginSpec]:
    """Returns every part of this distribution."""
    return [
        PluginSpec(
            "backend",
            "tvm",
            "autotune_tvm.backend:TVMBackend",
            "Apache TVM's TensorIR schedules, compiled by LLVM for the CPU",
        ),
        PluginSpec(
            "runner",
            "rpc",
            "autotune_tvm.rpc.engine:RPCEngine",
            "Machines that run only TVM's RPC server, which a tracker gives out",
            backend="tvm",
        ),
        PluginSpec(
            "search_space",
            "trace",
            "autotune_tvm.trace.space:make_trace_space",
            "Schedules of TVM's own rules, with their sampling decisions as parameters",
            default_cost_model="lowered",
            has_nest=False,
            backend="tvm",
        ),
        PluginSpec(
            "step",
            "tvm_trace",
            "autotune_tvm.trace.step:TraceStep",
            "A trace of TVM's schedule primitives",
        ),
        PluginSpec(
            "cost_model",
            "lowered",
            "autotune_tvm.trace.cost_model:LoweredTrees",
            "Gradient-boosted trees over features of the program that TVM lowers",
            spaces=("trace",),
        ),
        PluginSpec(
            "frontend",
            "relax",
            "autotune_tvm.networks.frontend:RelaxFrontend",
            "modules of Relax, which become graphs of workloads",
        ),
    ]

"""Options of servers."""

from __future__ import annotations

from typing import Any

import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.rpc.engine import RPCEngine
from autotune_tvm.rpc.options import ENVIRONMENT, RPCOptions, read_environment, read_rpc_options

from autotune.errors import AutotuneError, InvalidValueError, UnsupportedTarget
from autotune.measure import MeasureProtocol
from autotune.measure.engines import RunnerContext
from autotune.targets import Target

GIVEN = {"tracker": "127.0.0.1:9190", "key": "pi4"}


def test_options_travel_to_processes() -> None:
    options = read_rpc_options({**GIVEN, "priority": 3, "session_timeout": 30, "cc": "cc -O1"})
    assert read_environment(options.environment()) == options
    assert options == RPCOptions("127.0.0.1:9190", "pi4", 3, 30.0, 0, "cc -O1")


@pytest.mark.parametrize("text", [None, "", "[]", "{", "3"])
def test_a_process_that_something_else_started(text: str | None) -> None:
    with pytest.raises(InvalidValueError, match=f"{ENVIRONMENT} is not set as the runner"):
        read_environment({} if text is None else {ENVIRONMENT: text})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs the address of TVM's RPC tracker: --rpc-tracker HOST:PORT"),
        ({"tracker": "127.0.0.1:9190"}, "needs the key of the servers: --rpc-key KEY"),
        ({**GIVEN, "tracker": "9190"}, "is HOST:PORT, such as 127.0.0.1:9190, not '9190'"),
        ({**GIVEN, "key": "a b"}, "has no blanks and no colon: 'a b'"),
        ({**GIVEN, "key": "a:b"}, "has no blanks and no colon: 'a:b'"),
        ({**GIVEN, "priority": -1}, "priority"),
        ({**GIVEN, "session_timeout": 0.5}, "session_timeout"),
        ({**GIVEN, "traker": "x"}, "Did you mean 'tracker'"),
    ],
)
def test_what_makes_no_sense_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError) as raised:
        read_rpc_options(given)
    assert message in str(raised.value)


def context(**others: Any) -> RunnerContext:
    values: dict[str, Any] = {
        "backend": "tvm",
        "target": Target("cpu", "board", cores=1, processor="x86-64-v3"),
        "protocol": MeasureProtocol(),
        "options": GIVEN,
    }
    return RunnerContext(**{**values, **others})


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"backend": "mlir"}, "programs of backends 'tvm' and 'native' .* not those of 'mlir'"),
        ({"protocol": MeasureProtocol(cold=True)}, "does not empty the caches of servers"),
        ({"observers": ("perf",)}, r"observers \(perf\) read counters of this machine"),
        ({"options": {**GIVEN, "cc": "no-such-cc"}}, "'no-such-cc' is not on the PATH"),
        ({"target": Target("cuda", "gpu", processor="sm_80")}, "runs programs on CPUs only"),
    ],
)
def test_what_servers_cannot_do_is_refused_before_anything_starts(
    others: dict[str, Any], message: str
) -> None:
    with pytest.raises(AutotuneError, match=message):
        RPCEngine(context(**others))


def test_servers_may_have_instructions_that_this_machine_lacks() -> None:
    board = Target("cpu", "board", cores=1, processor="x86-64-v3", features=("avx2", "avx99"))
    with pytest.raises(UnsupportedTarget, match="lacks avx99 of target 'board'"):
        TVMBackend().check_measuring(board)
    RPCEngine(context(target=board))

"""Options for the servers that programs are to be timed on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import asdict, frozen

from autotune.errors import InvalidValueError
from autotune.plugins.options import option, read_options
from autotune_tvm.rpc.tracker import Address, parse_address

__all__ = ["ENVIRONMENT", "RPCOptions", "read_environment", "read_rpc_options"]

ENVIRONMENT = "AUTOTUNE_TVM_RPC"
"""Environment variable by which worker processes learn of them."""


@frozen
class RPCOptions:
    """Options of the runner ``rpc``.

    Attributes:
        tracker: Where TVM's RPC tracker listens, as HOST:PORT.
        key: The key that servers have registered with.
        priority: Of this run among clients of the tracker; higher ones are served first.
        session_timeout: Seconds after which a server ends a session, whatever runs. A program
            that hangs keeps its server for as long. Sessions are renewed when half of it is over.
        servers: Most servers to use; 0 for all that have the key.
        cc: C compiler for the servers' machines, such as aarch64-linux-gnu-gcc; "" is the host's.
    """

    tracker: str = option("")
    key: str = option("")
    priority: int = option(1, low=0, high=1_000_000)
    session_timeout: float = option(60.0, low=2.0, high=86_400.0)
    servers: int = option(0, low=0, high=1024)
    cc: str = option("")

    @property
    def address(self) -> Address:
        """Of the tracker."""
        return parse_address(self.tracker)

    def environment(self) -> dict[str, str]:
        """Environment that tells worker processes of them."""
        return {ENVIRONMENT: json.dumps(asdict(self))}


def read_rpc_options(given: Mapping[str, Any] | None) -> RPCOptions:
    """Options as users gave them.

    Raises:
        InvalidValueError: one is unknown or makes no sense, or the tracker or the key is missing.
    """
    options = read_options("runner 'rpc'", RPCOptions, given)
    if not options.tracker:
        raise InvalidValueError(
            "runner 'rpc' needs the address of TVM's RPC tracker: --rpc-tracker HOST:PORT"
        )
    if not options.key:
        raise InvalidValueError("runner 'rpc' needs the key of the servers: --rpc-key KEY")
    parse_address(options.tracker)
    if any(character.isspace() or character == ":" for character in options.key):
        raise InvalidValueError(f"a server's key has no blanks and no colon: {options.key!r}")
    return options


def read_environment(environment: Mapping[str, str]) -> RPCOptions:
    """Options that :meth:`RPCOptions.environment` has passed on.

    Raises:
        InvalidValueError: there are none: nothing but the runner ``rpc`` starts such a process.
    """
    text = environment.get(ENVIRONMENT, "")
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise InvalidValueError(
            f"{ENVIRONMENT} is not set as the runner 'rpc' sets it: {text[:80]!r}"
        )
    return read_rpc_options(given)

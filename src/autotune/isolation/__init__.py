"""Processes that may crash, hang or exhaust memory without harm to the one that started them."""

from __future__ import annotations

from autotune.isolation.channel import ATTACHMENTS, Decoder, Message, NotAMessage, encode
from autotune.isolation.errors import WorkerStartFailed
from autotune.isolation.memory import default_memory_limit
from autotune.isolation.private_folder import PrivateFolder, make_private_folder
from autotune.isolation.worker_process import WorkerDied, WorkerProcess, worker_environment

__all__ = [
    "ATTACHMENTS",
    "Decoder",
    "Message",
    "NotAMessage",
    "PrivateFolder",
    "WorkerDied",
    "WorkerProcess",
    "WorkerStartFailed",
    "default_memory_limit",
    "encode",
    "make_private_folder",
    "worker_environment",
]

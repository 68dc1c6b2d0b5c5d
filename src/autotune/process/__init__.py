"""Processes that may crash, hang or exhaust memory without harm to the one that started them."""

from __future__ import annotations

from autotune.process.channel import ATTACHMENTS, Decoder, Message, NotAMessage, encode
from autotune.process.errors import WorkerStartFailed
from autotune.process.memory import (
    affordable_workers,
    available_memory,
    default_memory_limit,
    may_build,
    resident_bytes,
)
from autotune.process.private_folder import (
    PrivateFolder,
    make_private_folder,
    writing_temporary_files,
)
from autotune.process.question import ask_isolated, ask_once
from autotune.process.worker_process import (
    THREAD_VARIABLES,
    WorkerDied,
    WorkerProcess,
    worker_environment,
)

__all__ = [
    "ATTACHMENTS",
    "Decoder",
    "Message",
    "NotAMessage",
    "PrivateFolder",
    "THREAD_VARIABLES",
    "WorkerDied",
    "WorkerProcess",
    "WorkerStartFailed",
    "affordable_workers",
    "ask_isolated",
    "ask_once",
    "available_memory",
    "default_memory_limit",
    "encode",
    "make_private_folder",
    "may_build",
    "resident_bytes",
    "worker_environment",
    "writing_temporary_files",
]

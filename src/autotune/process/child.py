"""The child's side of a process: start-up, and communication with the host.

It announces the phases of its work with ``{"phase": name}`` and answers each message with
``{"done": ...}`` or ``{"failed": message}``, so that the host knows which deadline runs and what
was going on when the process died.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from autotune.process.channel import ATTACHMENTS, Decoder, Message, encode

__all__ = ["Connection", "Handler", "connect", "describe", "serve"]

Handler = Callable[[Message], Message]
"""Does what a message asks for and returns the body of ``done``; what it raises is ``failed``."""

_LEAST_FREE_BYTES = 1 << 20
# How long a host may take to make its folder again, and how often that is looked for.
_HOST_SECONDS, _HOST_POLL_SECONDS = 2.0, 0.01
_MESSAGE_CHARACTERS = 2000


class Connection:
    """The pipes to the host.

    Args:
        receive: File descriptor to read messages from.
        send: File descriptor to write messages to.
    """

    def __init__(self, receive: int, send: int) -> None:
        self._receive = receive
        self._send = send

    def messages(self) -> Iterator[Message]:
        """Messages as they come, until the host closes its end."""
        decoder = Decoder()
        while data := os.read(self._receive, 1 << 16):
            yield from decoder.feed(data)

    def send(self, message: Message) -> None:
        """Send one message, however long that takes."""
        data = memoryview(encode(message))
        while data:
            data = data[os.write(self._send, data) :]

    @contextlib.contextmanager
    def phase(self, name: str, timings: dict[str, float] | None = None) -> Iterator[None]:
        """Announce a phase; its seconds are written to ``timings``, also when it raises."""
        self.send({"phase": name})
        begin = time.perf_counter()
        try:
            yield
        finally:
            if timings is not None:
                timings[name] = time.perf_counter() - begin


def connect(program: str, options: Sequence[str] = ()) -> tuple[Connection, dict[str, str]]:
    """Become a process that talks to its host and fails before it exhausts the memory.

    What has been imported until now is never looked through for garbage.

    Args:
        program: Name of the module, for messages.
        options: Names of the options beside those that ``WorkerProcess`` passes by itself.

    Returns:
        The connection to the host, and the options' values.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    for name in options:
        parser.add_argument(f"--{name}", required=True)
    for name in ("receive", "send", "memory"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = vars(parser.parse_args())
    gc.freeze()
    gc.enable()
    _limit_memory(given["memory"])
    for name in ("receive", "send"):
        os.set_inheritable(given[name], False)
    return Connection(given["receive"], given["send"]), {name: given[name] for name in options}


def serve(connection: Connection, handlers: Mapping[str, Handler]) -> None:
    """Answer messages by their ``op`` until the host closes its end; then end the process.

    It also ends after an answer when the disk is full and has temporary files of this process on
    it, which are removed with it.

    Unloading compilers at interpreter exit is slow and may crash, and nothing is left to save.

    What a message made of the process is not left to the next one: one after which the
    process may open fewer files has failed, and ends it too. A folder that is gone is made again.
    """
    # Kept: what runs here may change the environment.
    folder = os.environ["TMPDIR"]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for message in connection.messages():
        try:
            body = handlers[message["op"]](message)
            answer: Message = {"done": body}
            if ATTACHMENTS in body:
                answer[ATTACHMENTS] = body.pop(ATTACHMENTS)
        except Exception as error:  # the host decides what a failure means
            answer = {"failed": describe(error)}
        left = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if left < files:
            answer = {"failed": f"lowered the limit of open files from {files} to {left}"}
        connection.send(answer)
        if left < files:
            break
        if not _keep(folder) or _holds_a_full_disk(folder):
            break
    os._exit(0)


def describe(error: BaseException) -> str:
    """Describe an exception in a bounded string that every encoding of Unicode can hold."""
    try:
        text = str(error) or "(no message)"
    except BaseException as second:  # it is not ours
        text = f"(its text cannot be made: {type(second).__name__})"
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return f"{type(error).__name__}: {text}"[:_MESSAGE_CHARACTERS]


def _keep(folder: str) -> bool:
    """Make a folder again if it is gone; whether that was possible.

    Where that of the host is gone too, the host makes it again when it has the answer: only it
    may, as it holds the lock that tells others whose it is.
    """
    end = time.monotonic() + _HOST_SECONDS
    while True:
        with contextlib.suppress(OSError):
            os.mkdir(folder, mode=0o700)
        if os.path.isdir(folder):
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(_HOST_POLL_SECONDS)


def _holds_a_full_disk(folder: str) -> bool:
    """Return whether the disk is full, and this process has files in its folder there."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < _LEAST_FREE_BYTES and bool(os.listdir(folder))


def _limit_memory(size: int) -> None:
    """Make a process that exhausts memory fail by itself, before anybody else suffers."""
    if size > 0:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or size < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (size, hard))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")

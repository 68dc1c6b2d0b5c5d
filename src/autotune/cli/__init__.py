"""The command line. Subcommands are imported when they are used."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys

__all__ = ["main"]

_ERROR = 2
_INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        try:
            if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
                signal.signal(signal.SIGTERM, signal.default_int_handler)
            status = _run()
        finally:
            # A second signal comes while the first is acted upon, or while the interpreter ends.
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)
    except KeyboardInterrupt:
        status = _INTERRUPTED
    sys.exit(status)


def _run() -> int:
    if not _hold_standard_streams():
        print("autotune: error: standard output is closed", file=sys.stderr)
        return _ERROR
    # Names of files and stages may have characters that the stream's encoding lacks.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    # What packages log of an error is in its message, too, which is shown as one line.
    logging.disable(logging.CRITICAL)
    from autotune.cli.app import run

    return run(sys.argv[1:])


def _hold_standard_streams() -> bool:
    """Open what is closed of the standard streams, else a database would get its number.

    Returns whether standard output was open.
    """
    was_open = sys.stdout is not None
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
    return was_open

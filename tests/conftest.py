"""The tests of interrupts need one that is not ignored."""

from __future__ import annotations

import signal

# A shell starts its background jobs with interrupts ignored, and so would all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

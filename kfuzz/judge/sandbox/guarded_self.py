"""Keeping the campaign's own memory from processes of the same user."""

import contextlib
import threading
from typing import Final

from kfuzz.judge.sandbox import linux

_lock: Final = threading.Lock()
_holders = 0
_before = 1


def close_to_others() -> None:
    """Refuse tracing of this process, and reading of its memory; to be undone once."""
    global _holders, _before
    with _lock:
        _holders += 1
        if _holders == 1:
            with contextlib.suppress(OSError):
                _before = linux.prctl(linux.PR_GET_DUMPABLE)
                linux.prctl(linux.PR_SET_DUMPABLE, 0)


def open_to_others() -> None:
    """Undo what `close_to_others` did, once all that asked for it have."""
    global _holders
    with _lock:
        _holders -= 1
        if _holders == 0 and _before == 1:
            with contextlib.suppress(OSError):
                linux.prctl(linux.PR_SET_DUMPABLE, 1)

"""One judge for a process, for interfaces that have no place to keep one."""

import atexit
import threading
from typing import Any, Final

from kfuzz.judge.service.judge import Judge

_judges: Final[dict[str, Judge]] = {}
_lock: Final = threading.Lock()


def judge_with(**options: Any) -> Judge:
    """Return the judge of this process with these options, begun if it is not there.

    It ends with the process.

    Args:
        options: as `kfuzz.Judge` takes them.

    Raises:
        KfuzzError: as `kfuzz.Judge`.
    """
    key = repr(sorted(options.items()))
    with _lock:
        if key not in _judges:
            _judges[key] = Judge(**options)
            atexit.register(_judges[key].close)
        return _judges[key]

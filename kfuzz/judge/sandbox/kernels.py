"""Which kernels of Triton's a call launches."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def triton_launches(names: dict[str, None]) -> Iterator[None]:
    """Note the names of the kernels that Triton launches meanwhile, if it is there.

    By Triton's own hook: torch's profiler sees nothing in a forked process, and takes
    seconds to say so (measured on an H100).
    """
    triton: Any = sys.modules.get("triton")
    hooks = getattr(getattr(triton, "knobs", None), "runtime", None)
    chain: Any = getattr(hooks, "launch_enter_hook", None)
    if not hasattr(chain, "add"):
        yield
        return

    def enter(metadata: Any) -> None:
        name = getattr(metadata, "data", {}).get("name")
        if name:
            names[str(name)] = None

    chain.add(enter)
    try:
        yield
    finally:
        chain.remove(enter)

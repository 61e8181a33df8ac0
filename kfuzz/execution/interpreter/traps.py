"""Failures of Triton's interpreter and their causes, in words.

They surface as errors about something else; none is evidence against a kernel.
"""

from collections.abc import Iterator
from typing import Final


class NoForm(NotImplementedError):
    """What a kernel uses has no form in Triton's interpreter.

    Its text names it, and the way out.
    """


# Text that an error holds -> what happened and the way out.
_TRAPS: Final = {
    "waits for a program that has yet to run": (
        "a program waits for one that comes after it, and here they run one after the "
        "other; run on a GPU"
    ),
}

# Where nothing is interpreted, too: the kernel was defined for a GPU that is not there,
# or asks its driver.
_NO_DRIVER: Final = "0 active drivers"
_UNINTERPRETED: Final = (
    "Triton looked for a GPU, and there is none: the wrapper asks for one itself, or "
    "TRITON_INTERPRET was not set when the kernel was defined; leave that to kfuzz, "
    "which sets it in its child processes (--device auto, --isolate auto)"
)


def explanation(error: BaseException, *, interpreted: bool = True) -> str:
    """Return what an exception from Triton means, "" if it is no trap.

    Args:
        error: what left the kernel.
        interpreted: whether this process runs Triton kernels in the interpreter.
    """
    chain = list(_chain(error))
    if any(_NO_DRIVER in str(e) for e in chain):
        return _UNINTERPRETED
    for seen in chain if interpreted else ():
        if isinstance(seen, NoForm):
            return str(seen)
        for sign, meaning in _TRAPS.items():
            if sign in str(seen):
                return meaning
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__

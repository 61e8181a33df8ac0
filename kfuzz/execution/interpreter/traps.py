"""Failures of Triton's interpreter and their causes, in words.

They surface as errors about something else; none is evidence against a kernel.
"""

from typing import Final

from kfuzz.core.errors import chain, message_of


class NoForm(NotImplementedError):
    """What a kernel uses has no form in Triton's interpreter.

    Its text names it, and the way out.
    """


# Text that an error holds -> what happened and the way out.
_TRAPS: Final = {
    # Triton 3.6 makes numbers of arrays of one element; NumPy 2.4 refuses.
    "only 0-dimensional arrays can be converted": (
        "triton 3.6's interpreter needs numpy older than 2.4; install 'numpy<2.4' or "
        "a newer triton"
    ),
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
    related = list(chain(error))
    if any(_NO_DRIVER in message_of(e) for e in related):
        return _UNINTERPRETED
    for seen in related if interpreted else ():
        if isinstance(seen, NoForm):
            return str(seen)
        for sign, meaning in _TRAPS.items():
            if sign in message_of(seen):
                return meaning
    return ""

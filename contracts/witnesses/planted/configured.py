"""Faults of configurations: of two, one gives a wrong tail."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final

from kfuzz.contracts.witnesses.planted.base import Base, Fault, packed, unpacked
from kfuzz.contracts.witnesses.planted.results import wrong_tail

CONFIGS: Final = ({"BLOCK": 64}, {"BLOCK": 128})
# The one whose last block is wrong.
FAULTY: Final = 128


def with_blocks(base: Base, *, faulty: int | None = None) -> Base:
    """Return the kernel with a keyword BLOCK, and two configurations of it.

    Args:
        base: a conforming kernel.
        faulty: the BLOCK with which the last element of a tail is wrong; None for
            a kernel that is right with each.
    """

    @functools.wraps(base.function)
    def blocked(*tensors: Any, BLOCK: int, **scalars: Any) -> Any:
        returned = base.function(*tensors, **scalars)
        if faulty != BLOCK:
            return returned
        outputs, several = unpacked(returned)
        return packed(wrong_tail(tensors, outputs), several)

    _give_keyword(blocked, base.function)
    return base.having(blocked).claiming(configs=CONFIGS)


def _give_keyword(blocked: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Give a function the signature of another, and BLOCK as a keyword."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin tells nothing of its parameters
        return
    own = inspect.Parameter("BLOCK", inspect.Parameter.KEYWORD_ONLY)
    parts = list(signature.parameters.values())
    last = bool(parts) and parts[-1].kind is inspect.Parameter.VAR_KEYWORD
    parts.insert(len(parts) - last, own)
    blocked.__signature__ = signature.replace(parameters=parts)  # type: ignore[attr-defined]


FAULTS: Final = (
    Fault(
        "wrong_block", "C-CMP-02",
        "gives a wrong last element with one of two block sizes, where the number of "
        "elements is no multiple of 8, or that of rows is odd",
        lambda base: with_blocks(base, faulty=FAULTY),
    ),
)  # fmt: skip

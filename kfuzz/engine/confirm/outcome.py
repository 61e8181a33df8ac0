"""What became of a variation of a minimum."""

from collections.abc import Callable
from enum import StrEnum

from kfuzz.core.recipe import Case


class Fate(StrEnum):
    """What a kernel does on a variation of a case that fails.

    FAILS: shows the same symptom. OTHERWISE: fails, with another symptom. PASSES:
    conforms. UNKNOWN: cannot be run or judged.
    """

    FAILS = "fails"
    OTHERWISE = "fails otherwise"
    PASSES = "passes"
    UNKNOWN = "unknown"


FateOf = Callable[[Case], Fate]

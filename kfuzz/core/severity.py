"""How grave a finding is: the order in which findings are listed."""

from collections.abc import Collection
from enum import IntEnum
from typing import Final

from kfuzz.core.verdict import ILLEGAL_ADDRESS, Feature, Kind, Signature


class Severity(IntEnum):
    """How grave a finding is, the gravest first.

    OUT_OF_BOUNDS: memory that the kernel was not given is read or written.
    CRASH: the call crashes, hangs or raises.
    WRONG_VALUE: a result is wrong on finite input.
    PRECISION: a result is less precise than declared.
    NONDETERMINISM: equal calls give different results.
    NONFINITE: only NaN or infinities in the input show it.
    LIMIT: the result is right; another declared property is not.
    """

    OUT_OF_BOUNDS = 1
    CRASH = 2
    WRONG_VALUE = 3
    PRECISION = 4
    NONDETERMINISM = 5
    NONFINITE = 6
    LIMIT = 7

    @property
    def words(self) -> str:
        """The severity for people and documents."""
        return _WORDS[self]


_WORDS: Final = {
    Severity.OUT_OF_BOUNDS: "out-of-bounds access",
    Severity.CRASH: "crash or hang",
    Severity.WRONG_VALUE: "wrong value",
    Severity.PRECISION: "precision",
    Severity.NONDETERMINISM: "nondeterminism",
    Severity.NONFINITE: "non-finite input only",
    Severity.LIMIT: "limit",
}
_OF_KIND: Final = {
    Kind.READ_OUTSIDE: Severity.OUT_OF_BOUNDS,
    Kind.WRITE_OUTSIDE: Severity.OUT_OF_BOUNDS,
    Kind.HANG: Severity.CRASH,
    Kind.CRASH: Severity.CRASH,
    Kind.DEVICE_FAULT: Severity.CRASH,
    Kind.UNCHECKED_LAUNCH: Severity.CRASH,
    Kind.RAISES: Severity.CRASH,
    Kind.RACE: Severity.NONDETERMINISM,
    Kind.NONDETERMINISTIC: Severity.NONDETERMINISM,
    Kind.SEED_DEPENDENT: Severity.NONDETERMINISM,
    Kind.BATCH_DEPENDENT: Severity.NONDETERMINISM,
    Kind.OVERLAP_DEPENDENT: Severity.NONDETERMINISM,
    Kind.TUNING_DEPENDENT: Severity.NONDETERMINISM,
    Kind.NONFINITE_ACCEPTED: Severity.NONFINITE,
    Kind.FOREIGN_OPERATOR: Severity.LIMIT,
    Kind.DOES_NOT_BUILD: Severity.LIMIT,
}
# A process that ends takes all with it, whatever the input was.
_WHATEVER_IT_NEEDS: Final = frozenset(
    {Kind.READ_OUTSIDE, Kind.WRITE_OUTSIDE, Kind.HANG, Kind.CRASH, Kind.DEVICE_FAULT}
)
_OF_PRECISION: Final = ("C-PRC-01", "C-PRC-03", "C-PRC-04")
_OF_RANGE: Final = "C-PRC-02"
_NONFINITE: Final = "C-EXC-01"
_NUMBERS: Final = {Feature.NAN: "NaN", Feature.INF: "infinity"}


def contract_of(signature: Signature, message: str) -> str:
    """Return the class that a failure breaks; of a gradient the one it names."""
    named = message.partition(" in a gradient: ")
    return named[0] if named[1] and named[0] in message[:8] else signature.contract


def needed_nonfinite(
    signature: Signature, message: str, features: Collection[Feature]
) -> str:
    """Return what non-finite input a failure needs: "NaN"; "" where it needs none.

    Args:
        signature: of the failure.
        message: of the failure.
        features: what the explanation found that it needs.
    """
    needed = [words for feature, words in _NUMBERS.items() if feature in features]
    if not needed and contract_of(signature, message) == _NONFINITE:
        return "NaN or infinity"
    return " and ".join(needed)


def severity_of(
    signature: Signature, message: str, features: Collection[Feature]
) -> Severity:
    """Return how grave a failure is; arguments as of `needed_nonfinite`."""
    kind = signature.kind
    if signature.detail == ILLEGAL_ADDRESS:
        return Severity.OUT_OF_BOUNDS
    if kind in _WHATEVER_IT_NEEDS:
        return _OF_KIND[kind]
    if needed_nonfinite(signature, message, features):
        return Severity.NONFINITE
    contract = contract_of(signature, message)
    imprecise = contract == _OF_RANGE and kind is Kind.VALUE
    if imprecise or contract in _OF_PRECISION:
        return Severity.PRECISION
    return _OF_KIND.get(kind, Severity.WRONG_VALUE)

"""C-PRC-04: powers of two commute with a homogeneous operator."""

from kfuzz.contracts.classes.values import changed_failure
from kfuzz.contracts.evidence import Evidence, Scaled
from kfuzz.contracts.language import (
    SECOND_CALL_SHARE,
    ContractClass,
    Probe,
    Structure,
    Tolerance,
)
from kfuzz.contracts.reading import miss_of
from kfuzz.core.verdict import Failure, Kind

ID = "C-PRC-04"


def judge(evidence: Evidence) -> Failure | None:
    """Return what scaled data show of a case that conforms."""
    if miss_of(evidence) is not None:
        return None
    made = (
        changed_failure(ID, c, Kind.SCALE_DEPENDENT) for c in evidence.of(Scaled).forms
    )
    return next((failure for failure in made if failure is not None), None)


CLASS = ContractClass(
    id=ID,
    rank=200,
    level=2,
    title="scaling the input by a power of two scales the result",
    scope="operators that are homogeneous in an argument, or in several together, "
    "and consist of sums, products and choices",
    precondition="The case conforms. The exponent is such that no argument, and no "
    "product of elements of the arguments, overflows or becomes subnormal.",
    postcondition="The result of scaled arguments is within their own acceptance. "
    "With determinism bitwise, if all numbers are finite and no bit of any term lies "
    "below the normal numbers, before or after, it has the very bits of the scaled "
    "result.",
    tolerance=Tolerance(
        Structure.COMPOSITE,
        "the acceptance of the scaled case; y(2^k x) == 2^(dk) y(x) where "
        "determinism is bitwise and all stays normal",
        "a power of two is exact, and rounding commutes with it within the normal "
        "numbers",
    ),
    sampled=(Probe.SCALED, Probe.SCALED_REPEAT, Probe.UNSCALED, Probe.UNSCALED_REPEAT),
    procedure=f"kfuzz's definition. On one in {SECOND_CALL_SHARE} of the conforming "
    "cases an argument, or several together, is multiplied by 2^k: by the greatest k "
    "in range and by the least, or the least under which bits are compared; where "
    "subnormal numbers may be flushed by so much more that what all elements may lose "
    "is less than one of them. The seed chooses the argument; a pinned case is tried "
    "with each. A miss there counts if no class more specific than K-VAL-01 claims it. "
    "Bits are compared where the lowest bit of every product of elements of the "
    "arguments lies 32 binary places, and as many as the elements' number has bits, "
    "above the least normal number of the formats that sums are kept in, in results "
    "within the output's range by a factor of four; and only if two runs of either "
    "case, in turn in the same memory, repeat their bits. No declared algorithm, "
    "approximation or stochastic store.",
    kinds=(Kind.SCALE_DEPENDENT,),
    later_kinds=(Kind.SCALE_DEPENDENT,),
    symptom='names the arguments and the power of two; detail is "bitwise" if the '
    "results are accepted",
    unseen={Kind.SCALE_DEPENDENT: "what it gives for scaled data"},
    judge=judge,
    decides=lambda evidence: bool(evidence.of(Scaled).forms),
    applies=lambda operator, claims: bool(operator.homogeneous),
    by_occasion=True,
    provisional=True,
    changed_data=True,
)

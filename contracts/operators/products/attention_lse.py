"""attention_lse(...): attention, and the log-sum-exp of each row of scores."""

from dataclasses import replace

from kfuzz import numerics as nm
from kfuzz.contracts.operator import Structure, Tolerance
from kfuzz.contracts.operators.products.attention import attention, with_lse


def accept(problem: "nm.Problem") -> "nm.Accepted":
    """Return attention's acceptance, and lse +- (r / (1 - r) + 6u |m| + 6u log l)."""
    return nm.attend_with_lse(problem)


attention_lse = replace(
    attention,
    name="attention_lse",
    # Whether a sink is part of the sum is not agreed upon.
    inputs={n: p for n, p in attention.inputs.items() if n != "sinks"},
    oracle=with_lse,
    error_model=accept,
    outputs=("y", "lse"),
    chain=(),
    tolerance=Tolerance(
        Structure.INTERVAL,
        "y as attention's; lse = m + log l, float32, within r / (1 - r) + 6u log l + "
        "6u |m| + u |lse|, r the relative error of attention's sum l",
        "the maximum cancels but for the roundings of itself, in base 2 or before the "
        "scale; 2 ulp of the logarithm; of the sum as in attention",
    ),
    special_values=f"{attention.special_values}; lse of a row without visible keys is "
    "an infinity of either sign",
)

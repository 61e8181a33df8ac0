"""attention_lse(...): attention, and the log-sum-exp of each row of scores."""

from dataclasses import replace

from kfuzz import numerics as nm
from kfuzz.contracts.operator import Structure
from kfuzz.contracts.operators.products.attention import attention, with_lse
from kfuzz.contracts.prose import bounded


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
    **bounded("attention_lse", Structure.INTERVAL),
)

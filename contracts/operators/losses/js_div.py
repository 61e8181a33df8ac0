"""js_div(x, target, beta, reduction): the generalised Jensen-Shannon divergence."""

from typing import Any, Final

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.losses import reduced, reduction
from kfuzz.contracts.prose import bounded

# Of a probability that is not 0.
LOGARITHM: Final = "(-inf, 0]"


def reference(x: Any, target: Any, *, beta: float, reduction: str) -> Any:
    """B P (log P - log M) + (1-b) Q (log Q - log M), M = b P + (1-b) Q, elementwise.

    log Q is x and log P the target. b = 0 is KL(P || Q) and b = 1 KL(Q || P), as
    generalised knowledge distillation defines them (Agarwal et al. 2024).
    """
    if beta == 0.0:
        return reduced(target.exp() * (target - x), reduction)
    if beta == 1.0:
        return reduced(x.exp() * (x - target), reduction)
    p, q = beta * target.exp(), (1 - beta) * x.exp()
    middle = (p + q).log()
    return reduced(p * (target - middle) + q * (x - middle), reduction)


js_div = Operator(
    "js_div",
    inputs={
        "x": ks.tensors("*", within=LOGARITHM),
        "target": ks.tensors("*", within=LOGARITHM),
        "beta": ks.scalar(0.5, domain=(0.0, 1.0, 0.1, 0.9)),
        "reduction": reduction("batchmean"),
    },
    oracle=reference,
    **bounded("js_div", Structure.INTERVAL),
)

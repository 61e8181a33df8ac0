"""adamw(param, grad, exp_avg, exp_avg_sq, step, lr, ...): one step of the optimizer."""

from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(
    param: Any,
    grad: Any,
    exp_avg: Any,
    exp_avg_sq: Any,
    *,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> Any:
    """(param', m', v') of AdamW (Loshchilov, Hutter 2019), `step` counted from 1.

    m' = b1 m + (1-b1) g, v' = b2 v + (1-b2) g^2, param' = (1 - lr wd) param -
    lr / (1-b1^t) m' / (sqrt(v' / (1-b2^t)) + eps).
    """
    # As tensors: a kernel that gets b2 in float32 subtracts it from 1 in float32.
    b1, b2 = (param.new_full((), beta) for beta in (beta1, beta2))
    # Kernels add the difference, or weight both: equal but for rounding. Under the
    # shadow half of the greater error remains, of which its safety makes twice that.
    added = exp_avg + (1 - b1) * (grad - exp_avg)
    mean = (b1 * exp_avg + (1 - b1) * grad + added) / 2
    square = b2 * exp_avg_sq + (1 - b2) * (grad * grad)
    first, second = 1 - b1**step, 1 - b2**step
    change = (mean / first) / ((square / second).sqrt() + eps)
    return param * (1 - lr * weight_decay) - lr * change, mean, square


def accept(problem: "nm.Problem") -> "nm.Accepted":
    """Return the shadow's acceptances, undecided beside an infinity without a NaN."""
    param, mean, square = nm.shadowed(reference, problem, name="adamw")
    of = nm.undecided_at_infinities
    return {
        "param": of(problem, param),
        "exp_avg": of(problem, mean, "grad", "exp_avg"),
        "exp_avg_sq": of(problem, square, "grad", "exp_avg_sq"),
    }


adamw = Operator(
    "adamw",
    inputs={
        "param": ks.tensors("*"),
        "grad": ks.tensors("*"),
        "exp_avg": ks.tensors("*"),
        "exp_avg_sq": ks.tensors("*", within=(0, None)),
        "step": ks.scalar(1, domain=(2, 10, 1000, 100000)),
        "lr": ks.scalar(1e-3, domain=(1.0, 1e-5)),
        "beta1": ks.scalar(0.9, domain=(0.5, 0.0)),
        "beta2": ks.scalar(0.999, domain=(0.95, 0.5)),
        "eps": ks.scalar(1e-8, domain=(1e-6, 1e-3)),
        "weight_decay": ks.scalar(0.01, domain=(0.0, 0.1)),
    },
    oracle=reference,
    error_model=accept,
    outputs=("param", "exp_avg", "exp_avg_sq"),
    ranks=range(5),
    **bounded("adamw", Structure.INTERVAL),
)

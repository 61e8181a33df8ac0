"""Steps of optimizers, and dropout."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Structure
from kfuzz.contracts.prose import defined


def reference_adamw(
    param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, *, step: int, lr: float,
    beta1: float, beta2: float, eps: float, weight_decay: float,
) -> Any:  # fmt: skip
    """(param', m', v') of AdamW (Loshchilov, Hutter 2019), `step` counted from 1.

    m' = b1 m + (1-b1) g, v' = b2 v + (1-b2) g^2, param' = (1 - lr wd) param -
    lr / (1-b1^t) m' / (sqrt(v' / (1-b2^t)) + eps).
    """
    # Kernels add the difference, or weight both: equal but for rounding. Under the
    # shadow half of the greater error remains, of which its safety makes twice that.
    added = exp_avg + (1 - beta1) * (grad - exp_avg)
    mean = (beta1 * exp_avg + (1 - beta1) * grad + added) / 2
    square = beta2 * exp_avg_sq + (1 - beta2) * (grad * grad)
    first, second = 1 - beta1**step, 1 - beta2**step
    change = (mean / first) / ((square / second).sqrt() + eps)
    return param * (1 - lr * weight_decay) - lr * change, mean, square


def accept_adamw(problem: nm.Problem) -> nm.Accepted:
    """Return the shadow's acceptances, undecided beside an infinity without a NaN."""
    param, mean, square = nm.shadowed(
        reference_adamw, problem, name="adamw", proven=True
    )
    of = nm.undecided_at_infinities
    return {
        "param": of(problem, param),
        "exp_avg": of(problem, mean, "grad", "exp_avg"),
        "exp_avg_sq": of(problem, square, "grad", "exp_avg_sq"),
    }


adamw = defined(
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
    oracle=reference_adamw,
    error_model=accept_adamw,
    outputs=("param", "exp_avg", "exp_avg_sq"),
    ranks=range(5),
)


# How improbable a share of zeros must be: one in 10^12 calls of a right kernel.
ALPHA: Final = 1e-12


def reference_dropout(x: Any, *, p: float, seed: int) -> Any:
    """X / (1 - p): what an element is that is kept."""
    return x / (1 - p)


def accept_dropout(problem: nm.Problem) -> nm.Acceptance:
    """Return 0 or x / (1 - p) and all between; the relation asks for one of them.

    What is no number may be dropped by a choice, or by a product with 0, which is NaN.
    """
    import torch

    low, high = _kept(problem)
    x = problem.tensors["x"]
    y = x / (1 - problem.number("p"))
    classes = nm.classes_of(y) | torch.where(
        torch.isfinite(y), nm.FINITE, nm.FINITE | nm.NAN
    )
    return nm.between(
        problem, y, low.clamp(max=0), high.clamp(min=0),
        classes=classes.to(torch.uint8), ambiguous=_overflows(problem, low, high),
    )  # fmt: skip


def _overflows(problem: nm.Problem, low: nm.Tensor, high: nm.Tensor) -> nm.Tensor:
    import torch

    return torch.maximum(low.abs(), high.abs()) > problem.output.max_finite


def _kept(problem: nm.Problem) -> tuple[nm.Tensor, nm.Tensor]:
    """Return the least and the greatest value of an element that is kept.

    A division within 2 ulp, or a reciprocal and a product: 7u; and 1 - p of a p in
    float32, itself rounded: 2u / (1 - p). What underflows is lost.
    """
    q = 1 - problem.number("p")
    unit = nm.intermediate_unit(problem)
    x = nm.finite_or_zero(problem.tensors["x"])
    y = x / q
    least = problem.output.min_normal if problem.flushes else 0.0
    margin = (7 + 2 / q) * unit * y.abs() + 2 * nm.FORMATS["float32"].min_normal
    return y - margin - least, y + margin + least


def relate_dropout(problem: nm.Problem, outputs: nm.Tensors) -> nm.Tensors:
    """Each element is 0 or x / (1 - p), and the share of zeros is that of chance.

    With q of n elements dropped, P <= 2 exp(-n KL(q/n || p)) (Chernoff 1952): refused,
    all of them, where that is below 10^-12.
    """
    import torch

    y, p = outputs["y"].to(torch.float64), problem.number("p")
    kept = _kept(problem)
    low, high = (nm.round_to(t, problem.output) for t in kept)
    fits = (y == 0) | ((low <= y) & (y <= high)) | ~torch.isfinite(y)
    # Elements of which it shows whether they were dropped. By the input alone: if an
    # element counted by what became of it, the share of zeros would no longer be p.
    clear = torch.isfinite(problem.tensors["x"]) & ~_overflows(problem, *kept)
    clear = clear & (torch.maximum(-high, low) > 2 * problem.output.min_normal)
    counts = clear.reshape(len(y), -1).sum(1).tolist()
    zeros = (clear & (y == 0)).reshape(len(y), -1).sum(1).tolist()
    likely = [_likely(n, k, p) for n, k in zip(counts, zeros, strict=True)]
    shown = torch.tensor(likely, device=y.device)
    return {"y": fits & shown.reshape(-1, *[1] * (y.dim() - 1))}


def _likely(n: int, zeros: int, p: float) -> bool:
    """Whether so many of n elements are dropped more often than `ALPHA`."""
    distance = 0.0
    for count, share in ((zeros, p), (n - zeros, 1 - p)):
        if count:
            distance += count * math.log(count / n / share) if share else math.inf
    return distance <= math.log(2 / ALPHA)


dropout = defined(
    "dropout",
    inputs={
        "x": ks.tensors("*"),
        "p": ks.scalar(0.0, domain=(0.5, 0.1, 0.9)),
        "seed": ks.scalar(0, domain=(1, 2, 12345, 2147483647)),
    },
    oracle=reference_dropout,
    error_model=accept_dropout,
    relation=relate_dropout,
    ranks=range(5),
    structure=Structure.INVARIANT,
)


def reference_sgd(
    param: Any, grad: Any, momentum_buffer: Any, *, lr: float, momentum: float,
    dampening: float, weight_decay: float, nesterov: bool,
) -> Any:  # fmt: skip
    """(param - lr d, b'), b' = momentum b + (1 - dampening) g, g = grad + wd param.

    d is b', or g + momentum b' (Nesterov).
    """
    g = grad + weight_decay * param if weight_decay else grad
    buffer = momentum * momentum_buffer + (1 - dampening) * g
    change = g + momentum * buffer if nesterov else buffer
    return param - lr * change, buffer


def accept_sgd(problem: nm.Problem) -> nm.Accepted:
    """Return the shadow's acceptances, undecided beside an infinity without a NaN.

    Without weight decay some kernels multiply the parameter by 0 and others do not.
    """
    import torch

    param, buffer = nm.shadowed(reference_sgd, problem, name="sgd", proven=True)
    param = nm.undecided_at_infinities(problem, param)
    if problem.number("weight_decay"):
        buffer = nm.undecided_at_infinities(problem, buffer)
    else:
        given = problem.tensors["param"]
        buffer = nm.undecided_at_infinities(problem, buffer, "grad", "momentum_buffer")
        unclear = buffer.undecided | ~torch.isfinite(given)
        buffer = replace(buffer, undecided=unclear)
    return {"param": param, "momentum_buffer": buffer}


sgd = defined(
    "sgd",
    inputs={
        "param": ks.tensors("*"),
        "grad": ks.tensors("*"),
        "momentum_buffer": ks.tensors("*"),
        "lr": ks.scalar(1e-3, domain=(1.0, 0.1)),
        "momentum": ks.scalar(0.9, domain=(0.5, 0.99)),
        "dampening": ks.scalar(0.0, domain=(0.1,)),
        "weight_decay": ks.scalar(0.0, domain=(0.01, 0.1)),
        "nesterov": ks.scalar(False, domain=(True,)),
    },
    oracle=reference_sgd,
    error_model=accept_sgd,
    outputs=("param", "momentum_buffer"),
    ranks=range(5),
    homogeneous={"param grad momentum_buffer": 1},
)

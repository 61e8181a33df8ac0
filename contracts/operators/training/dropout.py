"""dropout(x, p, seed): each element 0 with probability p, else x / (1 - p)."""

import math
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded

# How improbable a share of zeros must be: one in 10^12 calls of a right kernel.
ALPHA: Final = 1e-12


def reference(x: Any, *, p: float, seed: int) -> Any:
    """X / (1 - p): what an element is that is kept."""
    return x / (1 - p)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
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


def _overflows(
    problem: "nm.Problem", low: "nm.Tensor", high: "nm.Tensor"
) -> "nm.Tensor":
    import torch

    return torch.maximum(low.abs(), high.abs()) > problem.output.max_finite


def _kept(problem: "nm.Problem") -> "tuple[nm.Tensor, nm.Tensor]":
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


def related(problem: "nm.Problem", outputs: "nm.Tensors") -> "nm.Tensors":
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


dropout = Operator(
    "dropout",
    inputs={
        "x": ks.tensors("*"),
        "p": ks.scalar(0.0, domain=(0.5, 0.1, 0.9)),
        "seed": ks.scalar(0, domain=(1, 2, 12345, 2147483647)),
    },
    oracle=reference,
    error_model=accept,
    relation=related,
    ranks=range(5),
    **bounded("dropout", Structure.INVARIANT),
)

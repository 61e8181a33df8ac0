"""rope(x, cos, sin, interleaved, repeats): pairs of columns turned by given angles."""

from dataclasses import replace
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded


def reference(x: Any, cos: Any, sin: Any, *, interleaved: bool, repeats: int) -> Any:
    """The sum x cos + turned(x) sin; a pair (a, b) is turned to (-b, a).

    Pairs are columns i and i + D/2 (GPT-NeoX), or 2i and 2i + 1 if interleaved
    (GPT-J); the tables serve every batch and head.
    """
    c, s = tables(cos, sin, interleaved=interleaved, repeats=repeats)
    return x * c + turned(x, interleaved=interleaved) * s


def turned(x: Any, *, interleaved: bool) -> Any:
    """Return the other half of each pair, the first one's negated."""
    import torch

    half = x.shape[-1] // 2
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def tables(cos: Any, sin: Any, *, interleaved: bool, repeats: int) -> tuple[Any, Any]:
    """Return the tables as [..., S, 1, D]."""
    spread = [
        t.repeat_interleave(repeats, -1) if interleaved else t.tile(repeats)
        for t in (cos, sin)
    ]
    return spread[0].unsqueeze(-2), spread[1].unsqueeze(-2)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the sum of two products, each rounded or fused with the addition.

    The error is absolute in |x cos| + |x' sin|: where they cancel, that of either
    product remains.
    """
    import torch

    t, interleaved = problem.tensors, bool(problem.scalars["interleaved"])
    arithmetic = nm.Arithmetic.declared(problem)
    x, other = t["x"], turned(t["x"], interleaved=interleaved)
    cos, sin = (
        table.unsqueeze(1)
        for table in tables(
            t["cos"], t["sin"], interleaved=interleaved, repeats=problem.axis("repeats")
        )
    )
    terms, classes, overflows = [], [], []
    for a, b in ((x, cos), (other, sin)):
        seen_a, seen_b = arithmetic.read(a), arithmetic.read(b)
        # The rounded product holds the exact one that a fused addition takes.
        term = arithmetic.rounded(seen_a * seen_b)
        size = torch.maximum(-term.low, term.high)
        terms.append(term)
        classes.append(nm.product_classes(a, seen_a, b, seen_b))
        overflows.append((size > arithmetic.format.max_finite) & torch.isfinite(a * b))
    return arithmetic.accepted(
        # The tables as they lie beside x.
        replace(problem, tensors={"x": x, "cos": cos, "sin": sin}),
        x * cos + other * sin,
        arithmetic.last(terms[0] + terms[1]),
        classes=nm.added_classes(*classes),
        ambiguous=overflows[0] | overflows[1],
    )


rope = Operator(
    "rope",
    inputs={
        "x": ks.tensors("B S H D"),
        "cos": ks.tensors("S E", role="weight"),
        "sin": ks.tensors("S E", role="weight"),
        "interleaved": ks.scalar(False, domain=(True,)),
        "repeats": ks.scalar(1, domain=(2,)),
    },
    oracle=reference,
    homogeneous={"x": 1, "cos sin": 1},
    error_model=accept,
    batch="B",
    shape_class="D % 2 == 0 and E == D // repeats and 1 <= repeats and repeats <= 2",
    **bounded("rope", Structure.INTERVAL),
)

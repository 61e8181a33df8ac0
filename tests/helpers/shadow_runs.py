"""Running expressions under the shadow, for its tests."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.oracle import accept
from kfuzz.core.declaration import Declaration
from kfuzz.numerics.acceptance import Acceptance, Problem
from kfuzz.numerics.formats import FORMATS
from kfuzz.numerics.shadow import Shadow, Steps
from kfuzz.numerics.shadow.shade import Shade

U = 2.0**-24 + 2.0**-53
ETA = 2.0**-149


def problem_of(*xs: Tensor, members: bool = False, **claims: Any) -> Problem:
    """Return the problem of these arguments; subnormals are kept unless claimed."""
    dtype = str(xs[0].dtype).removeprefix("torch.")
    claims.setdefault("subnormals", "preserve")
    named = {f"x{i}": x.to(torch.float64) for i, x in enumerate(xs)}
    return Problem(
        tensors=named if members else {n: x[None] for n, x in named.items()},
        scalars={},
        format=FORMATS[dtype],
        output=FORMATS[dtype],
        declaration=replace(Declaration(), **claims),
    )


def shaded(
    f: Callable[..., Any], *xs: Tensor, **claims: Any
) -> tuple[Tensor, Shade, Shadow]:
    """Return the first result of f, its shade, and the shadow that made it."""
    problem = problem_of(*xs, **claims)
    shadow = Shadow(Steps.declared(problem))
    inputs = [t[0] for t in problem.tensors.values()]
    for x in inputs:
        shadow.take(x)
    with torch.no_grad(), shadow:
        out = f(*inputs)
    out = out[0] if isinstance(out, tuple) else out
    return out, shadow.shade(out), shadow


def operator_of(f: Callable[..., Any], inputs: int = 1, outputs: int = 1) -> Operator:
    """Return an operator without an error model."""
    return Operator(
        "made_up",
        inputs={f"x{i}": ks.tensors("*") for i in range(inputs)},
        oracle=f,
        outputs=tuple(f"y{i}" for i in range(outputs)),
    )


def accepted(f: Callable[..., Any], *xs: Tensor, **claims: Any) -> Acceptance:
    """Return what is admitted for the only result of f."""
    made = accept(operator_of(f, len(xs)), problem_of(*xs, **claims))
    return made["y0"]

"""conv2d(x, weight, bias, stride, padding, dilation, groups): cross-correlation."""

from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded

WINOGRAD: Final = "winograd"


def reference(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: int,
    padding: int,
    dilation: int,
    groups: int = 1,
) -> Any:
    """torch.nn.functional.conv2d with zeros around x."""
    import torch

    return torch.nn.functional.conv2d(
        x, weight, bias, stride, padding, dilation, groups
    )


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the matrix product of weights and columns, its bound and classes.

    See `kfuzz.numerics.models.convolutions`; K = I R S products per element.
    """
    made = nm.convolved(problem)
    if problem.declaration.algorithm == WINOGRAD:
        x, weight = problem.tensors["x"], problem.tensors["weight"]
        whole = tuple(problem.axis(n) for n in ("stride", "dilation"))
        if (*weight.shape[-2:], *whole) == (3, 3, 1, 1):
            groups = problem.axis("groups")
            made = nm.widened(
                problem, made,
                x.unflatten(2, (groups, -1)), weight.unflatten(1, (groups, -1)),  # type: ignore[no-untyped-call]
                padding=problem.axis("padding"),
            )  # fmt: skip
    return nm.merged(made).accepted(problem)


conv2d = Operator(
    "conv2d",
    inputs={
        "x": ks.tensors("N C H W"),
        "weight": ks.tensors("O I R S"),
        "bias": ks.tensors("O", role="bias", optional=True),
        "stride": ks.scalar(1, domain=(2, 3, 4)),
        "padding": ks.scalar(0, domain=(1, 2, 3)),
        "dilation": ks.scalar(1, domain=(2, 3)),
        "groups": ks.scalar(1, domain=(2, 3, 8)),
    },
    oracle=reference,
    homogeneous={"x bias": 1, "weight bias": 1},
    error_model=accept,
    batch="N",
    reduced="C",
    empty_reduction=False,
    shape_class="R >= 1 and S >= 1 and R <= 7 and S <= 7 and O >= 1 and H >= 1 and "
    "W >= 1 and H + 2 * padding > dilation * (R - 1) and "
    "W + 2 * padding > dilation * (S - 1) and "
    "I == C // groups and C % groups == 0 and O % groups == 0",
    workspaces=("N C R S H W",),
    usual={"N": 1, "R": 3, "S": 3},
    algorithms={
        WINOGRAD: "3 x 3 filters at stride 1 and dilation 1 by Winograd's tiles of 2 x "
        "2 or 4 x 4 outputs, whose error is that of far larger terms"
    },
    **bounded("conv2d", Structure.INTERVAL),
)

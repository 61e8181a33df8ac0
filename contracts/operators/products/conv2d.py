"""conv2d(x, weight, bias, stride, padding, dilation, groups): cross-correlation."""

from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance

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

    K = I R S products per element, I the channels of one group, S the convolution of
    the magnitudes. Padding is a term that some kernels multiply out and others skip:
    beside a weight that is not finite both results are admitted.
    """
    import torch

    groups = problem.axis("groups")
    # Groups as a dimension of their own: [members, N, groups, I, H, W].
    x = torch.unflatten(problem.tensors["x"], 2, (groups, -1))
    weight = torch.unflatten(problem.tensors["weight"], 1, (groups, -1))
    bias = problem.tensors.get("bias")
    stride, padding = problem.axis("stride"), problem.axis("padding")
    dilation = problem.axis("dilation")
    members, batch = x.shape[:2]
    out, _, r, s = weight.shape[2:]

    places = [
        (n + 2 * padding - dilation * (size - 1) - 1) // stride + 1
        for n, size in zip(x.shape[-2:], (r, s), strict=True)
    ]
    # [filter size, places]: where each place of the filter meets the padded image.
    down, across = (
        torch.arange(size, device=x.device)[:, None] * dilation
        + torch.arange(n, device=x.device) * stride
        for size, n in zip((r, s), places, strict=True)
    )

    def columns(images: Any) -> Any:
        padded = torch.nn.functional.pad(images, (padding,) * 4)
        met = padded[..., down[:, None, :, None], across[None, :, None, :]]
        return met.flatten(-2).flatten(3, 5)

    present = None
    if padding:
        present = columns(torch.ones_like(x[:, :1])) > 0
    addend = None
    if bias is not None:
        addend = torch.unflatten(bias, 1, (groups, -1))[:, None, ..., None]
    made = nm.dots(
        problem,
        weight.flatten(3).unsqueeze(1),
        columns(x),
        addend=addend,
        present=present,
    )
    if addend is not None:
        made = nm.rounded_before(problem, made, addend)
    by_tiles = problem.declaration.algorithm == WINOGRAD
    if by_tiles and (r, s, stride, dilation) == (3, 3, 1, 1):
        made = made.reshaped(members, batch, groups, out, *places)
        made = nm.widened(problem, made, x, weight, padding=padding)
    made = made.reshaped(members, batch, groups * out, *places)
    return made.accepted(problem)


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
    tolerance=Tolerance(
        Structure.INTERVAL,
        "RNE(z - E) <= y <= RNE(z + E), E = R (conv(|x|, |w|) + |b|) + (K+2) lambda, "
        "R as matmul's with K = I R S; E = 0 where every order is exact; with "
        'algorithm="winograd" ((1+R) (1+gamma(26)) - 1) |A^T| (sum over channels of '
        "(|G||w||G|^T) o (|B^T||x||B|)) |A|, R with K = I",
        "K products and K additions in any order, fused or not, the bias at any place: "
        "direct convolution and implicit matrix product. Winograd's transforms are a "
        "declared algorithm; Fourier's have errors of another form and lie outside",
    ),
    special_values="as matmul's; padding contributes nothing, or a product with 0, "
    "which is NaN where the weight is infinite",
)

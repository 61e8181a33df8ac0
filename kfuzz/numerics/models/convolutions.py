"""Convolutions in any number of dimensions, and transposed ones, as matrix products."""

import torch
from torch import Tensor

from kfuzz.numerics.acceptance import Problem
from kfuzz.numerics.models.dots import Dots, dots, rounded_before


def convolved(problem: Problem, *, transposed: bool = False) -> Dots:
    """Return the convolution of x with weight, and bias, of a problem.

    A matrix product of weights and columns, K = I R S ... products per element, I the
    channels of one group. Padding, and what a transposed one puts between elements, is
    a term that some kernels multiply out and others skip: beside a weight that is not
    finite both results are admitted.

    Args:
        problem: with the tensors x [members, N, C, *spatial], weight [members, O, I,
            *filter], or [members, C, O, *filter] if transposed, and maybe bias; with
            the integer scalars stride, padding, dilation, groups, and output_padding.
        transposed: whether it is the adjoint of a convolution.

    Returns:
        The sums, [members, N, groups, O, *places], O the results of one group.
    """
    groups = problem.axis("groups")
    stride, padding = problem.axis("stride"), problem.axis("padding")
    dilation = problem.axis("dilation")
    # Groups as a dimension of their own: [members, N, groups, I, *spatial].
    x = torch.unflatten(problem.tensors["x"], 2, (groups, -1))
    weight = torch.unflatten(problem.tensors["weight"], 1, (groups, -1))
    if transposed:
        weight = weight.transpose(2, 3)
    filters, spatial = weight.shape[4:], x.shape[4:]
    met = []
    for n, size in zip(spatial, filters, strict=True):
        tap = torch.arange(size, device=x.device)[:, None] * dilation
        if transposed:
            more = problem.axis("output_padding") - 2 * padding
            places = (n - 1) * stride + dilation * (size - 1) + 1 + more
            at = torch.arange(places, device=x.device) + padding - tap
            there, at = at % stride == 0, at // stride
        else:
            places = (n + 2 * padding - dilation * (size - 1) - 1) // stride + 1
            at = torch.arange(places, device=x.device) * stride - padding + tap
            there = torch.ones_like(at, dtype=torch.bool)
        # [size, places]: the element that a place meets; the one behind the last
        # stands for none.
        met.append(torch.where(there & (at >= 0) & (at < n), at, n))
    dims = len(met)
    index = tuple(
        m.reshape([m.shape[0] if i == d else 1 for i in range(dims)]
                  + [m.shape[1] if i == d else 1 for i in range(dims)])
        for d, m in enumerate(met)
    )  # fmt: skip

    def columns(images: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(images, (0, 1) * dims)
        seen = padded[(..., *index)]  # type: ignore[index]
        return seen.flatten(-dims).flatten(3, 3 + dims)

    present = None
    if any(bool((m == n).any()) for m, n in zip(met, spatial, strict=True)):
        present = columns(torch.ones_like(x[:, :1])) > 0
    bias, addend = problem.tensors.get("bias"), None
    if bias is not None:
        addend = torch.unflatten(bias, 1, (groups, -1))[:, None, ..., None]
    made = dots(
        problem, weight.flatten(3).unsqueeze(1), columns(x),
        addend=addend, present=present,
    )  # fmt: skip
    if addend is not None:
        made = rounded_before(problem, made, addend)
    shape = [m.shape[1] for m in met]
    return made.reshaped(*x.shape[:3], weight.shape[2], *shape)


def merged(made: Dots) -> Dots:
    """Return the sums with the groups' results as one dimension of channels."""
    members, batch, groups, out, *places = made.value.shape
    return made.reshaped(members, batch, groups * out, *places)

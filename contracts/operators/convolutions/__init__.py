"""Convolutions: what those in any number of dimensions have in common."""

from functools import partial
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded
from kfuzz.core.recipe import Scalar
from kfuzz.strategies.parameters import ScalarParameter


def convolution(
    name: str,
    *,
    axes: str,
    filters: str,
    longest: int,
    transposed: bool = False,
) -> Operator:
    """Return the operator of a convolution, or of its adjoint.

    Args:
        name: of torch.nn.functional's function, which is its oracle: "conv1d".
        axes: names of the spatial dimensions, "H W".
        filters: names of the filter's, as many.
        longest: most taps along one dimension.
        transposed: whether it is the adjoint.
    """

    def scalar(default: Scalar, *domain: Scalar) -> ScalarParameter:
        return ks.scalar(default, domain=domain)

    widths = filters.split()
    stride, groups, dilation = scalar(1, 2, 3), scalar(1, 2, 3, 8), scalar(1, 2, 3)
    padding = scalar(0, 1, 2, 3)
    scalars = {
        "stride": stride, "padding": padding, "dilation": dilation, "groups": groups,
    }  # fmt: skip
    claims = ["O >= 1", "C % groups == 0"]
    if transposed:
        # In torch's order.
        scalars = {
            "stride": stride, "padding": padding, "output_padding": scalar(0, 1),
            "groups": groups, "dilation": dilation,
        }  # fmt: skip
        claims += ["C >= 1", "output_padding < stride", "Q == O * groups"]
    else:
        claims += ["I == C // groups", "O % groups == 0"]
    for axis, taps in zip(axes.split(), widths, strict=True):
        reach = f"dilation * ({taps} - 1)"
        claims += [f"{axis} >= 1", f"{taps} >= 1", f"{taps} <= {longest}"]
        claims.append(
            f"({axis} - 1) * stride + {reach} + output_padding + 1 > 2 * padding"
            if transposed
            else f"{axis} + 2 * padding > {reach}"
        )
    return Operator(
        name,
        inputs={
            "x": ks.tensors(f"N C {axes}"),
            "weight": ks.tensors(f"{'C O' if transposed else 'O I'} {filters}"),
            "bias": ks.tensors("Q" if transposed else "O", role="bias", optional=True),
            **scalars,
        },
        oracle=partial(_functional, name),
        homogeneous={"x bias": 1, "weight bias": 1},
        error_model=accept_adjoint if transposed else accept,
        batch="N",
        reduced="C",
        empty_reduction=False,
        shape_class=" and ".join(claims),
        workspaces=(f"N C {filters} {axes}",),
        # In three dimensions 27 taps leave no room for usual sizes of the rest.
        usual={"N": 1, **dict.fromkeys(widths, 3 if len(widths) < 3 else 2)},
        **bounded(name, Structure.INTERVAL),
    )  # fmt: skip


def _functional(
    name: str, x: Any, weight: Any, bias: Any = None, **scalars: Any
) -> Any:
    """Return what torch.nn.functional's function gives, with zeros around x."""
    import torch

    return getattr(torch.nn.functional, name)(x, weight, bias, **scalars)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the matrix product of weights and columns, its bound and classes.

    See `kfuzz.numerics.models.convolutions`.
    """
    return nm.merged(nm.convolved(problem)).accepted(problem)


def accept_adjoint(problem: "nm.Problem") -> "nm.Acceptance":
    """Return the same of a transposed convolution."""
    return nm.merged(nm.convolved(problem, transposed=True)).accepted(problem)

"""Convolutions: what those in any number of dimensions have in common."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.aten.rows import describes
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.elementwise import of_torch
from kfuzz.contracts.prose import bounded, defined
from kfuzz.core.recipe import Scalar
from kfuzz.strategies.parameters import ScalarParameter


def convolution(
    name: str, *, axes: str, filters: str, longest: int, transposed: bool = False,
    strides: tuple[int, ...] = (1, 2, 3),
) -> Operator:  # fmt: skip
    """Return the operator of a convolution, or of its adjoint.

    Args:
        name: of torch.nn.functional's function, which is its oracle: "conv1d".
        axes: names of the spatial dimensions, "H W".
        filters: names of the filter's, as many.
        longest: most taps along one dimension.
        transposed: whether it is the adjoint.
        strides: those that are drawn, the default first.
    """

    def scalar(default: Scalar, *domain: Scalar) -> ScalarParameter:
        return ks.scalar(default, domain=domain)

    widths = filters.split()
    stride, groups, dilation = scalar(*strides), scalar(1, 2, 3, 8), scalar(1, 2, 3)
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


def accept(problem: nm.Problem) -> nm.Acceptance:
    """Return the matrix product of weights and columns, its bound and classes.

    See `kfuzz.numerics.models.dots`.
    """
    return nm.merged(nm.convolved(problem)).accepted(problem)


def accept_adjoint(problem: nm.Problem) -> nm.Acceptance:
    """Return the same of a transposed convolution."""
    return nm.merged(nm.convolved(problem, transposed=True)).accepted(problem)


def reference_causal_conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    initial_state: Any = None,
    *,
    activation: str | None,
) -> Any:
    """(y, final state), y_t = act(b + sum_w weight_w x_(t - W + 1 + w)) per channel.

    Before the first element stands the initial state, or zeros; the final state are
    the last W - 1 elements of both.
    """
    import torch

    width = weight.shape[-1]
    if initial_state is None:
        padded = torch.nn.functional.pad(x, (width - 1, 0))
    else:
        padded = torch.cat((initial_state, x), -1)
    y = (padded.unfold(-1, width, 1) * weight[:, None]).sum(-1)
    if bias is not None:
        y = y + bias[:, None]
    y = y if activation is None else y * y.sigmoid()
    return y, padded[..., padded.shape[-1] - (width - 1) :]


causal_conv1d = defined(
    "causal_conv1d",
    inputs={
        "x": ks.tensors("B D L"),
        "weight": ks.tensors("D W"),
        "bias": ks.tensors("D", role="bias", optional=True),
        "initial_state": ks.tensors("B D E", optional=True),
        "activation": ks.scalar(None, domain=("silu",)),
    },
    oracle=reference_causal_conv1d,
    outputs=("y", "final_state"),
    batch="B",
    shape_class="W >= 1 and W <= 8 and L >= 1 and D >= 1 and E == W - 1",
    workspaces=("B D L W",),
    usual={"W": 4},
)


conv1d = convolution("conv1d", axes="L", filters="R", longest=7)


WINOGRAD: Final = "winograd"


def accept_conv2d(problem: nm.Problem) -> nm.Acceptance:
    """Return the matrix product of weights and columns, its bound and classes.

    See `kfuzz.numerics.models.dots`; K = I R S products per element.
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


_STRIDED: Final = (
    "input=x weight bias stride=[stride,stride] padding=[padding,padding] "
    "dilation=[dilation,dilation]"
)
conv2d = replace(
    convolution("conv2d", axes="H W", filters="R S", longest=7, strides=(1, 2, 3, 4)),
    oracle=of_torch(
        "nn.functional.conv2d", "torch.nn.functional.conv2d with zeros around x."
    ),
    error_model=accept_conv2d,
    algorithms={
        WINOGRAD: "3 x 3 filters at stride 1 and dilation 1 by Winograd's tiles of 2 x "
        "2 or 4 x 4 outputs, whose error is that of far larger terms"
    },
    aten=describes(
        "conv2d", f"{_STRIDED} groups", unfolded={"N": "*"}, ranks=range(3, 5)
    )
    + describes(
        "convolution", f"{_STRIDED} transposed=False output_padding=[0,0] groups"
    ),
)


conv3d = convolution("conv3d", axes="D H W", filters="T R S", longest=3)


conv_transpose1d = convolution(
    "conv_transpose1d", axes="L", filters="R",
    longest=7, transposed=True,
)  # fmt: skip


conv_transpose2d = convolution(
    "conv_transpose2d", axes="H W", filters="R S",
    longest=5, transposed=True,
)  # fmt: skip

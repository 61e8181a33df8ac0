"""Functions of autograd written by hand: right ones, and ones with faults of their own.

They compute in float32 and keep what usual kernels keep: the result as it is stored,
or what the forward call was given. Each fault passes at a friendly shape.
"""

from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd import Function

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.witness import Witness


def called(function: type[Function], *given: Any) -> Any:
    """Call a function of autograd."""
    return function.apply(*given)  # type: ignore[no-untyped-call]


class Softmax(Function):
    """Softmax that keeps its result as it is stored."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        """Return the result in the data's format."""
        y = torch.softmax(x.float(), dim).to(x.dtype)
        ctx.save_for_backward(y)
        ctx.dim = dim
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        """Return y (g - sum g y)."""
        y, g = ctx.saved_tensors[0].float(), g.float()
        total = (g * y).sum(ctx.dim, keepdim=True)
        return (y * (g - total)).to(ctx.saved_tensors[0].dtype), None


@kernel(ops.softmax, gradients=True, approx=True)
def gradient_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Right."""
    return called(Softmax, x, dim)  # type: ignore[no-any-return]


class LastSoftmax(Softmax):
    """Sums along the last dimension, whichever was asked for."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        """Return y (g - sum g y), the sum along the last dimension."""
        ctx.dim = -1
        return Softmax.backward(ctx, g)


@kernel(ops.softmax, gradients=True, approx=True)
def gradient_softmax_last(x: Tensor, dim: int = -1) -> Tensor:
    """K-GRD-01: right for dim=-1 alone."""
    return called(LastSoftmax, x, dim)  # type: ignore[no-any-return]


class NarrowSoftmax(Softmax):
    """Sums in float16, one element after the other."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        """Return y (g - sum g y), the sum in float16."""
        y = ctx.saved_tensors[0]
        terms = (g * y).half().cumsum(ctx.dim)
        total = terms.narrow(ctx.dim, -1, 1) if terms.shape[ctx.dim] else 0
        return (y * (g - total)).to(y.dtype), None


@kernel(ops.softmax, gradients=True, approx=True)
def gradient_softmax_narrow(x: Tensor, dim: int = -1) -> Tensor:
    """K-GRD-01: its sum is one of float16."""
    return called(NarrowSoftmax, x, dim)  # type: ignore[no-any-return]


# Memory for results that calls of one shape share.
_workspace: dict[Any, Tensor] = {}


class SharedSoftmax(Function):
    """Keeps its result in memory that all calls of one shape share."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        """Return a copy of what it keeps."""
        y = torch.softmax(x.float(), dim)
        kept = _workspace.setdefault((y.shape, y.device), torch.empty_like(y))
        ctx.kept, ctx.dim = kept.copy_(y), dim
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        """Return y (g - sum g y), with the last y of that shape."""
        wide = g.float()
        total = (wide * ctx.kept).sum(ctx.dim, keepdim=True)
        return (ctx.kept * (wide - total)).to(g.dtype), None


@kernel(ops.softmax, gradients=True, approx=True)
def gradient_softmax_shared(x: Tensor, dim: int = -1) -> Tensor:
    """K-GRD-01: another forward call changes what the first one kept."""
    return called(SharedSoftmax, x, dim)  # type: ignore[no-any-return]


class Exp(Function):
    """An exp that keeps its result where autograd does not see it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return the result itself."""
        ctx.y = torch.exp(x.float()).to(x.dtype)
        return ctx.y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        """Return g y."""
        made: Tensor = (g.float() * ctx.y.float()).to(g.dtype)
        return made


@kernel(ops.exp, gradients=True, approx=True)
def gradient_exp_unseen(x: Tensor) -> Tensor:
    """K-GRD-01: overwriting its result changes the gradient, and nobody says so."""
    return called(Exp, x)  # type: ignore[no-any-return]


class Tanh(Function):
    """Tanh that keeps its result; backward works in what it kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Keep the result in float32."""
        ctx.y = torch.tanh(x.float())
        return ctx.y.to(x.dtype, copy=True)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        """Return g (1 - y y), computed in the memory of y."""
        slope = ctx.y.square_().neg_().add_(1)
        made: Tensor = (g.float() * slope).to(g.dtype)
        return made


@kernel(ops.tanh, gradients=True)
def gradient_tanh_once(x: Tensor) -> Tensor:
    """K-GRD-01: a second time through the graph it gives another gradient."""
    return called(Tanh, x)  # type: ignore[no-any-return]


class Matmul(Function):
    """A matrix product."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        """Return the product, summed in float32."""
        ctx.save_for_backward(a, b)
        return (a.float() @ b.float()).to(a.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return g b^T and a^T g, those that are asked for."""
        a, b, wide = (t.float() for t in (*ctx.saved_tensors, g))
        first, second = ctx.needs_input_grad
        da = (wide @ b.mT).to(g.dtype) if first else None
        return da, (a.mT @ wide).to(g.dtype) if second else None


@kernel(ops.matmul, gradients=True)
def gradient_matmul(a: Tensor, b: Tensor) -> Tensor:
    """Right."""
    return called(Matmul, a, b)  # type: ignore[no-any-return]


@kernel(ops.matmul, gradients=True)
def gradient_matmul_detached(a: Tensor, b: Tensor) -> Tensor:
    """K-GRD-01: where rows are not full, the first factor is cut off from the graph."""
    return called(Matmul, a.detach() if a.numel() % 8 else a, b)  # type: ignore[no-any-return]


class MixedMatmul(Matmul):
    """Asks whether a's gradient is needed where b's is meant."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return both gradients, or none."""
        a, b, wide = (t.float() for t in (*ctx.saved_tensors, g))
        if not ctx.needs_input_grad[0]:
            return None, None
        return (wide @ b.mT).to(g.dtype), (a.mT @ wide).to(g.dtype)


@kernel(ops.matmul, gradients=True)
def gradient_matmul_mixed(a: Tensor, b: Tensor) -> Tensor:
    """K-GRD-01: without a gradient of a there is none of b."""
    return called(MixedMatmul, a, b)  # type: ignore[no-any-return]


# Gradients that calls of one shape add to.
_sums: dict[Any, Tensor] = {}


class GatheringMatmul(Function):
    """Adds the gradient of b to memory that all calls of one shape share."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        """Forget what was added, and return the product."""
        ctx.save_for_backward(a, b)
        _sums[b.shape, b.dtype] = torch.zeros(b.shape, dtype=b.dtype, device=b.device)
        return (a.float() @ b.float()).to(a.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of a, and the sum of those of b."""
        a, b = ctx.saved_tensors
        of_a, of_b = Matmul.backward(_All((a, b)), g)
        assert of_a is not None
        assert of_b is not None
        return of_a, _sums[b.shape, b.dtype].add_(of_b).clone()


class _All:
    """A context in which every gradient is asked for."""

    needs_input_grad: Final = (True, True)

    def __init__(self, saved_tensors: tuple[Tensor, ...]) -> None:
        self.saved_tensors = saved_tensors


@kernel(ops.matmul, gradients=True)
def gradient_matmul_twice(a: Tensor, b: Tensor) -> Tensor:
    """K-GRD-01: two uses in one graph are counted three times."""
    return called(GatheringMatmul, a, b)  # type: ignore[no-any-return]


_SQUARE: Final = (64, 64)
_ROWS: Final = (16, 1024)
CONTRACT: Final = "K-GRD-01"


def _witness(name: str, contract: str, *shapes: tuple[int, ...]) -> Witness:
    return Witness(
        f"gradient_{name}.backward", "backward.gradients", contract, shapes,
        backends=("cpu", "cuda"),
    )  # fmt: skip


WITNESSES: Final = [
    _witness("softmax", "", _ROWS, _ROWS),
    _witness("softmax_last", CONTRACT, _ROWS, _ROWS),
    _witness("softmax_narrow", CONTRACT, _ROWS, _ROWS),
    _witness("softmax_shared", CONTRACT, _ROWS, _ROWS),
    _witness("exp_unseen", CONTRACT, _SQUARE, _SQUARE),
    _witness("tanh_once", CONTRACT, _SQUARE, _SQUARE),
    _witness("matmul", "", _SQUARE, _SQUARE, _SQUARE),
    _witness("matmul_detached", CONTRACT, _SQUARE, _SQUARE, _SQUARE),
    _witness("matmul_mixed", CONTRACT, _SQUARE, _SQUARE, _SQUARE),
    _witness("matmul_twice", CONTRACT, _SQUARE, _SQUARE, _SQUARE),
]

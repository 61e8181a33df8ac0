"""Functions of autograd written by hand: right ones, and ones with faults of their own.

They compute in float32 and keep what usual kernels keep: the result as it is stored,
or what the forward call was given. Each fault passes at a friendly shape.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd import Function

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.operator import Operator
from kfuzz.contracts.witnesses.witness import LONG_ROWS, SQUARE, Witness


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


class MixedMatmul(Matmul):
    """Asks whether a's gradient is needed where b's is meant."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return both gradients, or none."""
        a, b, wide = (t.float() for t in (*ctx.saved_tensors, g))
        if not ctx.needs_input_grad[0]:
            return None, None
        return (wide @ b.mT).to(g.dtype), (a.mT @ wide).to(g.dtype)


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


class LayerNorm(Function):
    """A layer_norm that keeps mean and reciprocal root in float32."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> Tensor:
        """Normalise in two passes."""
        wide = x.float()
        mean = wide.mean(-1, keepdim=True)
        r = ((wide - mean).square().mean(-1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(x, weight, mean, r)
        return ((wide - mean) * r * weight.float() + bias.float()).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        """Return all three gradients."""
        x, weight, mean, r = ctx.saved_tensors
        z, wide = (x.float() - mean) * r, g.float()
        wg = wide * weight.float()
        inner = (wg * z).mean(-1, keepdim=True)
        dx = r * (wg - wg.mean(-1, keepdim=True) - z * inner)
        n = x.shape[-1]
        dw, db = ((t.reshape(-1, n)).sum(0).to(g.dtype) for t in (wide * z, wide))
        return dx.to(g.dtype), dw, db, None


class FrozenLayerNorm(LayerNorm):
    """Takes a weight of ones for one that is not trained."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        """Return None for a weight of equal elements."""
        dx, dw, db, _ = LayerNorm.backward(ctx, g)
        weight = ctx.saved_tensors[1]
        frozen = weight.numel() > 0 and bool((weight == weight[0]).all())
        return dx, None if frozen else dw, db, None


class CrossEntropy(Function):
    """The mean loss of the rows that count."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, ignored: int) -> Tensor:
        """Keep the log-probabilities in float32."""
        log_p = torch.log_softmax(logits.float(), -1)
        kept = target != ignored
        at = torch.where(kept, target, 0).unsqueeze(-1)
        loss = torch.where(kept, -log_p.gather(-1, at).squeeze(-1), 0.0)
        ctx.save_for_backward(log_p, at, kept)
        return (loss.sum() / kept.sum()).to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        """Return (p - t) g / count."""
        log_p, at, kept = ctx.saved_tensors
        return CrossEntropy.pulled(log_p, at, kept, g, kept.sum()), None, None

    @staticmethod
    def pulled(log_p: Tensor, at: Tensor, kept: Tensor, g: Tensor, n: Any) -> Tensor:
        """Return the gradient of the logits of n rows."""
        share = log_p.exp()
        made = share.scatter_add(-1, at, torch.full_like(share[:, :1], -1.0))
        made = made * (g.float() / n)
        return torch.where(kept.unsqueeze(-1), made, 0.0).to(g.dtype)


class WholeCrossEntropy(CrossEntropy):
    """Divides by all rows, the ignored ones too."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        """Return (p - t) g / N."""
        log_p, at, kept = ctx.saved_tensors
        return CrossEntropy.pulled(log_p, at, kept, g, len(kept)), None, None


class L2Normalize(Function):
    """An l2_normalize whose denominator is a constant where the norm is below eps."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, eps: float) -> Tensor:
        """Keep the argument and its norms."""
        norm = x.float().square().sum(dim, keepdim=True).sqrt()
        ctx.save_for_backward(x, norm)
        ctx.given = dim, eps
        return (x.float() / norm.clamp_min(eps)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        """Return the gradient, with a part along y where the norm counts."""
        _, norm = ctx.saved_tensors
        plain, along = L2Normalize.parts(ctx, g)
        made = torch.where(norm > ctx.given[1], plain - along, plain)
        return made.to(g.dtype), None, None

    @staticmethod
    def parts(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return g / D, and what of it lies along y."""
        x, norm = ctx.saved_tensors
        dim, eps = ctx.given
        held = norm.clamp_min(eps)
        y, plain = x.float() / held, g.float() / held
        return plain, y * ((g.float() * y).sum(dim, keepdim=True) / held)


class UnheldL2Normalize(L2Normalize):
    """Takes the denominator for the norm everywhere."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        """Return the gradient as of a norm above eps."""
        plain, along = L2Normalize.parts(ctx, g)
        return (plain - along).to(g.dtype), None, None


# How each operator is called by a function of autograd.


def _elementwise(function: type[Function]) -> Callable[..., Any]:
    return lambda x: called(function, x)


def _of_rows(function: type[Function]) -> Callable[..., Any]:
    return lambda x, dim=-1: called(function, x, dim)


def _product(function: type[Function]) -> Callable[..., Any]:
    return lambda a, b: called(function, a, b)


def _layer_norm(function: type[Function]) -> Callable[..., Any]:
    return lambda x, weight, bias, eps=1e-5: called(function, x, weight, bias, eps)


def _l2_normalize(function: type[Function]) -> Callable[..., Any]:
    return lambda x, dim=-1, eps=1e-12: called(function, x, dim, eps)


def _cross_entropy(function: type[Function]) -> Callable[..., Any]:
    return lambda logits, target, ignore_index=-100: called(
        function, logits, target, ignore_index
    )


# What is right is named like its operator; all others have a fault.
_FORMS: Final[tuple[tuple[Operator, Any, Any, Any, dict[str, type[Function]]], ...]] = (
    (
        ops.softmax, {"approx": True}, _of_rows, (LONG_ROWS, LONG_ROWS),
        {"softmax": Softmax, "softmax_shared": SharedSoftmax},
    ),
    (ops.exp, {"approx": True}, _elementwise, (SQUARE, SQUARE), {"exp_unseen": Exp}),
    (ops.tanh, {}, _elementwise, (SQUARE, SQUARE), {"tanh_once": Tanh}),
    (
        ops.matmul, {}, _product, (SQUARE, SQUARE, SQUARE),
        {
            "matmul": Matmul, "matmul_mixed": MixedMatmul,
            "matmul_twice": GatheringMatmul,
        },
    ),
    (
        ops.layer_norm, {}, _layer_norm, (LONG_ROWS, (1024,), (1024,), LONG_ROWS),
        {"layer_norm": LayerNorm, "layer_norm_none": FrozenLayerNorm},
    ),
    (
        ops.l2_normalize, {}, _l2_normalize, (LONG_ROWS, LONG_ROWS),
        {"l2_normalize": L2Normalize, "l2_normalize_unheld": UnheldL2Normalize},
    ),
    (
        ops.cross_entropy.fixed(reduction="mean", label_smoothing=0.0), {},
        _cross_entropy, ((64, 512), (64,), ()),
        {"cross_entropy": CrossEntropy, "cross_entropy_whole": WholeCrossEntropy},
    ),
)  # fmt: skip
WITNESSES: Final[list[Witness]] = []
for _operator, _claims, _call, _shapes, _functions in _FORMS:
    for _name, _function in _functions.items():
        kernel(_operator, name=f"gradient_{_name}", gradients=True, **_claims)(
            _call(_function)
        )
        _contract = "" if _name == _operator.name else "K-GRD-01"
        _made_of = ("backward.gradients", _contract, _shapes)
        WITNESSES.append(
            Witness(f"gradient_{_name}.backward", *_made_of, backends=("cpu", "cuda"))
        )

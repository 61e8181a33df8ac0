"""Functions of autograd with parameters or indices: right ones, and faulty ones."""

from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd import Function

from kfuzz.contracts import kernel
from kfuzz.contracts import operators as ops
from kfuzz.contracts.witnesses.backward.gradients import CONTRACT, called
from kfuzz.contracts.witnesses.witness import Witness


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


@kernel(ops.layer_norm, gradients=True)
def gradient_layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """Right."""
    return called(LayerNorm, x, weight, bias, eps)  # type: ignore[no-any-return]


class FlatLayerNorm(LayerNorm):
    """Sums over the first dimension alone."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        """Return gradients, that of the bias over the first dimension."""
        dx, dw, _, _ = LayerNorm.backward(ctx, g)
        db = g.float().sum(0) if g.dim() > 1 else g.float()
        n = g.shape[-1]
        first = db.reshape(-1, n)[0] if db.numel() else db.new_zeros(n)
        return dx, dw, first.to(g.dtype), None


@kernel(ops.layer_norm, gradients=True)
def gradient_layer_norm_flat(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """K-GRD-01: of three dimensions one is missing in the sum of the bias."""
    return called(FlatLayerNorm, x, weight, bias, eps)  # type: ignore[no-any-return]


class FrozenLayerNorm(LayerNorm):
    """Takes a weight of ones for one that is not trained."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        """Return None for a weight of equal elements."""
        dx, dw, db, _ = LayerNorm.backward(ctx, g)
        weight = ctx.saved_tensors[1]
        frozen = weight.numel() > 0 and bool((weight == weight[0]).all())
        return dx, None if frozen else dw, db, None


@kernel(ops.layer_norm, gradients=True)
def gradient_layer_norm_none(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> Tensor:
    """K-GRD-01: equal weights have no gradient."""
    return called(FrozenLayerNorm, x, weight, bias, eps)  # type: ignore[no-any-return]


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


mean_loss = ops.cross_entropy.fixed(reduction="mean", label_smoothing=0.0)


@kernel(mean_loss, gradients=True)
def gradient_cross_entropy(
    logits: Tensor, target: Tensor, ignore_index: int = -100
) -> Tensor:
    """Right."""
    return called(CrossEntropy, logits, target, ignore_index)  # type: ignore[no-any-return]


class WholeCrossEntropy(CrossEntropy):
    """Divides by all rows, the ignored ones too."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        """Return (p - t) g / N."""
        log_p, at, kept = ctx.saved_tensors
        return CrossEntropy.pulled(log_p, at, kept, g, len(kept)), None, None


@kernel(mean_loss, gradients=True)
def gradient_cross_entropy_whole(
    logits: Tensor, target: Tensor, ignore_index: int = -100
) -> Tensor:
    """K-GRD-01: ignored rows count for the mean's gradient."""
    return called(WholeCrossEntropy, logits, target, ignore_index)  # type: ignore[no-any-return]


_ROWS: Final = (16, 1024)
_LOGITS: Final = ((64, 512), (64,), ())


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


@kernel(ops.l2_normalize, gradients=True)
def gradient_l2_normalize(x: Tensor, dim: int = -1, eps: float = 1e-12) -> Tensor:
    """Right."""
    return called(L2Normalize, x, dim, eps)  # type: ignore[no-any-return]


class UnheldL2Normalize(L2Normalize):
    """Takes the denominator for the norm everywhere."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        """Return the gradient as of a norm above eps."""
        plain, along = L2Normalize.parts(ctx, g)
        return (plain - along).to(g.dtype), None, None


@kernel(ops.l2_normalize, gradients=True)
def gradient_l2_normalize_unheld(
    x: Tensor, dim: int = -1, eps: float = 1e-12
) -> Tensor:
    """K-GRD-01: rows below eps are differentiated as if they were not."""
    return called(UnheldL2Normalize, x, dim, eps)  # type: ignore[no-any-return]


def _witness(name: str, contract: str, *shapes: tuple[int, ...]) -> Witness:
    return Witness(
        f"gradient_{name}.backward", "backward.norms", contract, shapes,
        backends=("cpu", "cuda"),
    )  # fmt: skip


WITNESSES: Final = [
    _witness("layer_norm", "", _ROWS, (1024,), (1024,), _ROWS),
    _witness("layer_norm_flat", CONTRACT, _ROWS, (1024,), (1024,), _ROWS),
    _witness("layer_norm_none", CONTRACT, _ROWS, (1024,), (1024,), _ROWS),
    _witness("l2_normalize", "", _ROWS, _ROWS),
    _witness("l2_normalize_unheld", CONTRACT, _ROWS, _ROWS),
    _witness("cross_entropy", "", *_LOGITS),
    _witness("cross_entropy_whole", CONTRACT, *_LOGITS),
]

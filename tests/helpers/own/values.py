"""Reductions, scans and norms."""

import torch
from torch import Tensor

import kfuzz
from kfuzz import strategies as ks
from tests.helpers.own.subject import Subject, like, without_strides

# Reductions ------------------------------------------------------------------------


def log_sum_exp(x: Tensor) -> Tensor:
    """log(sum(exp(x))) along the last axis, in float32."""
    return x.logsumexp(-1)


def _lse_online(x: Tensor) -> Tensor:
    top = torch.full(x.shape[:-1], -torch.inf)
    total = torch.zeros(x.shape[:-1])
    for s in range(0, x.shape[-1], 8):
        block = x[..., s : s + 8].float()
        new = torch.maximum(top, block.amax(-1))
        safe = torch.where(new.isinf(), 0.0, new)
        total = total * (top - safe).exp() + (block - safe[..., None]).exp().sum(-1)
        total = torch.where(new == torch.inf, torch.inf, total)
        top = new
    shift = torch.where(top.isinf(), 0.0, top)
    return total.log() + shift


def _lse_naive(x: Tensor) -> Tensor:
    return x.float().exp().sum(-1).log()


def _lse_rounded(x: Tensor) -> Tensor:
    return like(x, x.float().logsumexp(-1)).float()


def variance(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance along the last axis."""
    mean = x.mean(-1, keepdim=True)
    return mean[..., 0], (x - mean).square().mean(-1)


def _variance_by_columns(x: Tensor) -> tuple[Tensor, Tensor]:
    """Column by column, from the last one."""
    mean, m2 = torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1])
    for column in reversed(x.float().unbind(-1)):
        mean = mean + column
    mean = mean / x.shape[-1] if x.shape[-1] else mean / 0
    for column in reversed(x.float().unbind(-1)):
        m2 = m2 + (column - mean) ** 2
    return like(x, mean), like(x, m2 / x.shape[-1] if x.shape[-1] else m2 / 0)


def _variance_in_double(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.double()
    return like(x, wide.mean(-1)), like(x, wide.var(-1, correction=0))


def _variance_unbiased(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.float()
    return like(x, wide.mean(-1)), like(x, wide.var(-1))


def _variance_one_pass(x: Tensor) -> tuple[Tensor, Tensor]:
    mean = x.float().mean(-1)
    return like(x, mean), like(x, x.float().square().mean(-1) - mean.square())


def mean_of_chosen(x: Tensor, mask: Tensor) -> Tensor:
    """The mean of the chosen elements of each row, 0 where there are none."""
    count = mask.sum(-1)
    return torch.where(mask, x, 0.0).sum(-1) / count.clamp(min=1)


def _chosen_rows(x: Tensor, mask: Tensor) -> Tensor:
    rows = [
        r[m].float().sum() / max(int(m.sum()), 1) for r, m in zip(x, mask, strict=True)
    ]
    return like(x, torch.stack(rows)) if rows else x.new_empty(0)


def _chosen_of_all(x: Tensor, mask: Tensor) -> Tensor:
    return like(x, torch.where(mask, x.float(), 0.0).sum(-1) / max(x.shape[-1], 1))


def _chosen_by_product(x: Tensor, mask: Tensor) -> Tensor:
    total = (mask.float() * x.float()).sum(-1)  # NaN of what is not chosen
    return like(x, total / mask.sum(-1).clamp(min=1))


def _chosen_forgets_row(x: Tensor, mask: Tensor) -> Tensor:
    seen = mask.clone()
    seen[1:2] = True
    return _chosen_rows(x, seen)


def masked_softmax(x: Tensor, mask: Tensor) -> Tensor:
    """softmax over what is chosen, 0 elsewhere and in rows without any."""
    y = x.masked_fill(~mask, -torch.inf).softmax(-1)
    return torch.where(mask, y, 0.0)


def _masked_by_hand(x: Tensor, mask: Tensor) -> Tensor:
    seen = torch.where(mask, x.float(), -torch.inf)
    top = seen.amax(-1, keepdim=True)
    e = torch.where(mask, (x.float() - top).exp(), 0.0)
    return like(x, torch.where(mask, e / e.sum(-1, keepdim=True), 0.0))


def _masked_finite(x: Tensor, mask: Tensor) -> Tensor:
    seen = torch.where(mask, x.float(), -10000.0)
    return like(x, torch.where(mask, seen.softmax(-1), 0.0))


def _masked_afterwards(x: Tensor, mask: Tensor) -> Tensor:
    return like(x, torch.where(mask, x.float().softmax(-1), 0.0))


def running_maximum(x: Tensor) -> Tensor:
    """The greatest element so far along the last axis; NaN stays."""
    return x.cummax(-1).values if x.shape[-1] else x


def _maximum_by_steps(x: Tensor) -> Tensor:
    y = x.clone()
    for i in range(1, x.shape[-1]):
        y[..., i] = torch.maximum(y[..., i - 1], x[..., i])
    return y


def _maximum_ignores_nan(x: Tensor) -> Tensor:
    y = x.clone()
    for i in range(1, x.shape[-1]):
        y[..., i] = torch.fmax(y[..., i - 1], x[..., i])
    return y


def running_sum(x: Tensor) -> Tensor:
    """Cumulative sums along the last axis."""
    return x.cumsum(-1)


def _running_in_blocks(x: Tensor) -> Tensor:
    parts, carry = [], torch.zeros(*x.shape[:-1], 1)
    for s in range(0, x.shape[-1], 16):
        block = x[..., s : s + 16].float().cumsum(-1) + carry
        parts.append(like(x, block))
        carry = block[..., -1:]
    return torch.cat(parts, -1) if parts else x.clone()


def _running_doubling(x: Tensor) -> Tensor:
    y, step = x.float(), 1
    while step < x.shape[-1]:
        y = torch.cat([y[..., :step], y[..., step:] + y[..., :-step]], -1)
        step *= 2
    return like(x, y)


def _running_carry_in_16_bits(x: Tensor) -> Tensor:
    parts, carry = [], torch.zeros(*x.shape[:-1], 1)
    for s in range(0, x.shape[-1], 16):
        block = x[..., s : s + 16].float().cumsum(-1) + carry
        parts.append(like(x, block))
        carry = parts[-1][..., -1:].float()
    return torch.cat(parts, -1) if parts else x.clone()


def _running_exclusive(x: Tensor) -> Tensor:
    return like(x, x.float().cumsum(-1) - x.float())


# Norms -----------------------------------------------------------------------------


def gated_norm(x: Tensor, gate: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """rms_norm(x) * weight * silu(gate)."""
    scale = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    return x * scale * weight * (gate / (1 + (-gate).exp()))


def _gated(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide, g = x.float(), gate.float()
    root = (wide.square().sum(-1, keepdim=True) / x.shape[-1] + eps).sqrt()
    return like(x, g * torch.sigmoid(g) * (weight.float() * (wide / root)))


def _gated_outside(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide, g = x.float(), gate.float()
    root = (wide.square().sum(-1, keepdim=True) / x.shape[-1]).sqrt() + eps
    return like(x, g * torch.sigmoid(g) * (weight.float() * (wide / root)))


def _gated_no_gate(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    return _gated(x, torch.full_like(gate, 20.0), weight, eps)


def _gated_fixed_eps(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    return _gated(x, gate, weight, 1e-5)


def normalised(x: Tensor, bias: Tensor | None, *, dim: int) -> Tensor:
    """x over its length along an axis, plus a bias."""
    y = x / (x.square().sum(dim, keepdim=True) + 1e-6).sqrt()
    return y if bias is None else y + bias


def _normalised(x: Tensor, bias: Tensor | None = None, *, dim: int) -> Tensor:
    wide = x.float()
    y = wide * (torch.linalg.vecdot(wide, wide, dim=dim).unsqueeze(dim) + 1e-6).rsqrt()
    return like(x, y if bias is None else y + bias.float())


def _normalised_last(x: Tensor, bias: Tensor | None = None, *, dim: int) -> Tensor:
    return _normalised(x, bias, dim=dim if dim >= 0 else -1)


def _normalised_no_bias(x: Tensor, bias: Tensor | None = None, *, dim: int) -> Tensor:
    return _normalised(x, dim=dim)


_ROWS = {"x": ks.tensors("* N"), "mask": ks.masks("* N")}

SUBJECTS = (
    Subject(
        kfuzz.reference(
            log_sum_exp, {"x": ks.tensors("* N")}, results={"y": "float32"},
            shape_class="N >= 1",
        ),
        {"online": _lse_online},
        {"no maximum": _lse_naive, "rounded on the way": _lse_rounded},
    ),
    Subject(
        kfuzz.reference(
            variance, {"x": ks.tensors("* N")}, outputs=("mean", "var"),
            subtracts_mean=True,
        ),
        {"by columns": _variance_by_columns, "in float64": _variance_in_double},
        {"unbiased": _variance_unbiased, "one pass": _variance_one_pass},
    ),
    Subject(
        kfuzz.reference(
            mean_of_chosen, {"x": ks.tensors("B N"), "mask": ks.masks("B N")}
        ),
        {"row by row": _chosen_rows},
        {
            "mean of all": _chosen_of_all,
            "by a product": _chosen_by_product,
            "ignores a row of the mask": _chosen_forgets_row,
        },
    ),
    Subject(
        kfuzz.reference(masked_softmax, _ROWS, shape_class="N >= 1"),
        {"by hand": _masked_by_hand},
        {"finite": _masked_finite, "masked afterwards": _masked_afterwards},
    ),
    Subject(
        kfuzz.reference(running_maximum, {"x": ks.tensors("* N")}),
        {"by steps": _maximum_by_steps},
        {"ignores NaN": _maximum_ignores_nan},
    ),
    Subject(
        kfuzz.reference(running_sum, {"x": ks.tensors("* N")}),
        {"in blocks": _running_in_blocks, "doubling": _running_doubling},
        {
            "carries 16 bits": _running_carry_in_16_bits,
            "exclusive": _running_exclusive,
        },
    ),
    Subject(
        kfuzz.reference(
            gated_norm,
            {
                "x": ks.tensors("* N"),
                "gate": ks.tensors("* N"),
                "weight": ks.tensors("N", role="weight"),
                "eps": ks.scalar(1e-6, (1e-5, 1e-2)),
            },
            shape_class="N >= 1",
        ),
        {"by a sigmoid": _gated},
        {
            "eps outside": _gated_outside,
            "no gate": _gated_no_gate,
            "another eps": _gated_fixed_eps,
        },
    ),
    Subject(
        kfuzz.reference(
            normalised,
            {
                "x": ks.tensors("A B C"),
                "bias": ks.tensors("C", optional=True),
                "dim": ks.dim(of="x"),
            },
        ),
        {"by a product": _normalised},
        {"never the middle": _normalised_last, "no bias": _normalised_no_bias},
    ),
    Subject(
        kfuzz.reference(running_sum, {"x": ks.tensors("* N")}, name="sum_in_place"),
        {"one after the other": lambda x: x.copy_(_running_in_blocks(x))},
        {
            "reads what it wrote": lambda x: x.copy_(
                _running_in_blocks(_running_in_blocks(x))
            ),
            "returns it": _running_in_blocks,
            "ignores strides": lambda x: x.copy_(
                _running_in_blocks(without_strides(x))
            ),
        },
        {"inplace": ("x",)},
    ),
)  # fmt: skip

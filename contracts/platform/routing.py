"""Routing of tokens to experts, and filters of logits, as chains of torch's calls."""

from itertools import pairwise

import torch
from torch import Tensor

from kfuzz.contracts import operators as ops
from kfuzz.contracts.platform.products import product
from kfuzz.contracts.platform.table import implements


@implements(ops.topk_routing)
def torch_topk_routing(
    logits: Tensor, *, k: int = 2, renormalize: bool = False
) -> tuple[Tensor, Tensor]:
    """Apply `torch.softmax` in float32, then `torch.topk`."""
    weights, indices = torch.softmax(logits.float(), -1).topk(k, -1)
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights, indices


@implements(ops.moe_permute)
def torch_moe_permute(
    x: Tensor, experts: Tensor, *, count: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """Apply `torch.argsort`, `torch.bincount` and `torch.index_select`."""
    flat = experts.flatten()
    if bool(((flat < 0) | (flat >= count)).any()):
        raise IndexError("an expert that does not exist")
    source = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=count).cumsum(0)
    offsets = torch.cat((counts.new_zeros(1), counts))
    return x.index_select(0, source // max(experts.shape[1], 1)), offsets, source


@product(ops.grouped_matmul)
def torch_grouped_matmul(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """Multiply the rows of each group in turn."""
    y = x.new_empty(x.shape[0], weight.shape[-1])
    ends = offsets.tolist()
    for group, (start, end) in enumerate(pairwise(ends)):
        y[start:end] = x[start:end] @ weight[group]
    return y


@product(ops.moe_combine)
def torch_moe_combine(y: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Select the rows and multiply by the weights in a batch of products."""
    chosen = y.index_select(0, rows.flatten()).unflatten(0, rows.shape)  # type: ignore[no-untyped-call]
    return torch.bmm(weights.unsqueeze(-2), chosen).squeeze(-2)


@implements(ops.top_k_filter)
def torch_top_k_filter(logits: Tensor, *, k: int = 1) -> Tensor:
    """Compare with the last of `torch.topk`: all that equal it are kept."""
    if logits.numel() == 0:
        return logits.clone()
    least = logits.topk(k, -1).values[..., -1:]
    return logits.masked_fill(logits < least, float("-inf"))


@implements(ops.top_p_filter)
def torch_top_p_filter(logits: Tensor, *, p: float = 0.9) -> Tensor:
    """Sort, add in float32, and scatter what is to go back to its place."""
    if logits.numel() == 0:
        return logits.clone()
    ordered, order = logits.float().sort(-1, descending=True)
    weights = torch.softmax(ordered, -1)
    gone = weights.cumsum(-1) - weights >= p
    gone[..., 0] = False
    return logits.masked_fill(gone.scatter(-1, order, gone), float("-inf"))

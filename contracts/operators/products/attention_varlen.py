"""attention_varlen(q, k, v, cu_q, cu_k, …): attention within sequences end to end."""

from dataclasses import replace
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operators.products.attention import attention
from kfuzz.contracts.operators.products.attention import reference as dense


def reference(
    q: Any,
    k: Any,
    v: Any,
    cu_q: Any,
    cu_k: Any,
    *,
    causal: bool,
    scale: float | None,
    window: int | None,
    softcap: float | None,
    max_q: int | None = None,
    max_k: int | None = None,
    causal_alignment: str = "top_left",
) -> Any:
    """Attention of each sequence i, rows cu[i] to cu[i + 1] of tokens, by itself.

    `max_q` and `max_k` are the lengths of the longest.
    """
    import torch

    y = torch.zeros(*q.shape[:2], v.shape[-1], dtype=q.dtype, device=q.device)
    edges = zip(cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:], strict=True)
    for first, last, low, high in (map(int, e) for e in edges):
        rows = [
            t.transpose(0, 1).unsqueeze(0)
            for t in (q[first:last], k[low:high], v[low:high])
        ]
        made = dense(
            *rows, causal=causal, scale=scale, window=window, softcap=softcap,
            causal_alignment=causal_alignment,
        )  # fmt: skip
        y[first:last] = made[0].transpose(0, 1)
    return y


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return attention's acceptance, the tokens of other sequences hidden."""
    t = problem.tensors
    q, k, v = (t[n].transpose(1, 2).unsqueeze(1) for n in ("q", "k", "v"))
    of_q, at, queries = _places(t["cu_q"], q.shape[3])
    of_k, key, _ = _places(t["cu_k"], k.shape[3])
    inside = of_q.unsqueeze(-1) == of_k.unsqueeze(-2)
    ahead = key.unsqueeze(-2) - at.unsqueeze(-1)
    if problem.declaration.causal_alignment == "bottom_right":
        count = (t["cu_k"][:, 1:] - t["cu_k"][:, :-1]).gather(1, of_q)
        ahead = ahead - (count - queries).unsqueeze(-1)
    seen = inside
    if problem.scalars["causal"]:
        seen = seen & (ahead <= 0)
    if (window := problem.scalars["window"]) is not None:
        seen = seen & (ahead.abs() < int(window))
    reach = nm.Reach(seen[:, None, None], inside[:, None, None])
    posed = replace(problem, tensors={"q": q, "k": k, "v": v})
    made = nm.attend_with_lse(posed, reach)["y"]
    shape = (*t["q"].shape[:3], v.shape[-1])
    turned = replace(
        made,
        **{
            n: getattr(made, n).squeeze(1).transpose(1, 2).reshape(shape)
            for n in (
                "reference", "low", "high", "classes", "undecidable", "ambiguous"
            )
        },
    )  # fmt: skip
    return turned


def _places(offsets: Any, tokens: int) -> tuple[Any, Any, Any]:
    """Return of each token its sequence, its place there and the sequence's length."""
    import torch

    every = torch.arange(tokens, device=offsets.device)
    of = (offsets[:, None, 1:] <= every[:, None]).sum(-1)
    of = of.clamp(max=offsets.shape[1] - 2)
    first, last = offsets.gather(1, of), offsets.gather(1, of + 1)
    return of, every - first, last - first


attention_varlen = replace(
    attention,
    name="attention_varlen",
    inputs={
        "q": ks.tensors("N H D"),
        "k": ks.tensors("T G D"),
        "v": ks.tensors("T G D"),
        "cu_q": ks.offsets("C", of="N"),
        "cu_k": ks.offsets("C", of="T"),
        "causal": attention.inputs["causal"],
        "scale": attention.inputs["scale"],
        "window": attention.inputs["window"],
        "softcap": attention.inputs["softcap"],
        "max_q": ks.longest("cu_q"),
        "max_k": ks.longest("cu_k"),
    },
    oracle=reference,
    error_model=accept,
    chain=(),
    batch="",
    workspaces=("H N T", "H T D"),
    usual={"H": 2, "G": 2, "C": 4},
    special_values=f"{attention.special_values}; other sequences do not count",
)

"""attention_paged(q, k, v, pages, lengths, …): one query each, keys in pages."""

from dataclasses import replace
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operators.products.attention import attention
from kfuzz.contracts.operators.products.attention import reference as dense
from kfuzz.core.declaration import Declaration


def reference(
    q: Any,
    k: Any,
    v: Any,
    pages: Any,
    lengths: Any,
    *,
    limit: int,
    scale: float | None,
    softcap: float | None,
) -> Any:
    """Attention of the query of each sequence i with its first lengths[i] keys.

    Key j is k[pages[i, j // W], j % W], with pages of W keys; lengths are below
    `limit`.
    """
    import torch

    y = torch.zeros(*q.shape[:2], v.shape[-1], dtype=q.dtype, device=q.device)
    for i, length in enumerate(lengths.tolist()):
        keys, values = (
            t[pages[i]].flatten(0, 1)[:length].transpose(0, 1).unsqueeze(0)
            for t in (k, v)
        )
        row = q[i].unsqueeze(1).unsqueeze(0)
        made = dense(
            row, keys, values, causal=False, scale=scale, softcap=softcap
        )  # fmt: skip
        y[i] = made[0, :, 0]
    return y


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return attention's acceptance, of the pages in the order of the table."""
    import torch

    t = problem.tensors
    table, _ = nm.resolved(problem, "pages", t["k"].shape[1])
    item = torch.arange(table.shape[0], device=table.device)[:, None, None]
    # [members, B, L W, G, D] as [members, B, G, L W, D].
    k, v = (t[n][item, table].flatten(2, 3).transpose(2, 3) for n in ("k", "v"))
    q = t["q"].unsqueeze(3)
    place = torch.arange(k.shape[3], device=k.device)
    inside = place < t["lengths"].unsqueeze(-1)
    reach = nm.Reach(*[inside[:, :, None, None]] * 2)
    scalars = {**problem.scalars, "causal": False}
    posed = replace(problem, tensors={"q": q, "k": k, "v": v}, scalars=scalars)
    made = nm.attend_with_lse(posed, reach)["y"]
    return nm.reshaped(made, (*t["q"].shape[:3], v.shape[-1]))


attention_paged = replace(
    attention,
    name="attention_paged",
    inputs={
        "q": ks.tensors("B H D"),
        "k": ks.tensors("P W G D"),
        "v": ks.tensors("P W G D"),
        "pages": ks.indices("B L", below="P"),
        "lengths": ks.indices("B", below="limit"),
        "limit": ks.scalar(16, domain=(1, 2, 8, 33, 64)),
        "scale": attention.inputs["scale"],
        "softcap": attention.inputs["softcap"],
    },
    oracle=reference,
    error_model=accept,
    chain=(),
    shape_class="G >= 1 and H >= 1 and D >= 1 and W >= 1 and L >= 1 and H % G == 0 "
    "and limit <= L * W + 1",
    workspaces=("B H L W D",),
    usual={"B": 2, "H": 2, "G": 2, "W": 8, "L": 4},
    reduced=None,
    # Nothing checks tables of pages.
    defaults=Declaration(intermediates="output", out_of_bounds="undefined"),
    special_values=f"{attention.special_values}; keys beyond a length do not count",
)

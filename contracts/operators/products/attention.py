"""attention(q, k, v, mask, sinks, causal, scale, window, softcap), per head."""

import math
from typing import Any, Final

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.prose import bounded
from kfuzz.core.declaration import Declaration


def reference(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    sinks: Any = None,
    *,
    causal: bool,
    scale: float | None,
    window: int | None = None,
    softcap: float | None = None,
    causal_alignment: str = "top_left",
) -> Any:
    """softmax(scale q k^T + mask) v; head h uses the keys of group h // (H / G).

    With `softcap` c scores are c tanh(scale q k^T / c) before the mask; with `window` w
    a query at i sees keys at j with |i - j| < w alone; a head's sink is one more score
    of each of its rows, without a value. A row without visible keys has weights 0.
    """
    return with_lse(
        q, k, v, mask, sinks, causal=causal, scale=scale, window=window,
        softcap=softcap, causal_alignment=causal_alignment,
    )[0]  # fmt: skip


def with_lse(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    sinks: Any = None,
    *,
    causal: bool,
    scale: float | None,
    window: int | None = None,
    softcap: float | None = None,
    causal_alignment: str = "top_left",
) -> tuple[Any, Any]:
    """Attention, and the log of each row's sum of exponentials [B, H, S]."""
    import torch

    heads, groups = q.shape[1], k.shape[1]
    k = k.repeat_interleave(heads // groups, 1)
    v = v.repeat_interleave(heads // groups, 1)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = scale * (q @ k.transpose(-1, -2))
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores + mask
    seen = nm.visible(
        q.shape[2], k.shape[2], causal=causal, window=window,
        bottom=causal_alignment == "bottom_right", like=q,
    )  # fmt: skip
    scores = scores.masked_fill(~seen, -math.inf)
    if sinks is not None:
        more = sinks[:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat((scores, more), -1)
        v = torch.nn.functional.pad(v, (0, 0, 0, 1))
    void = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores, -1).masked_fill(void, 0.0)
    return weights @ v, torch.logsumexp(scores, -1)


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return O +- ((A + |O| r) / (1 - r) + R p|v| + 6u |O|), A = p rho |v|.

    rho bounds the relative error of a weight, r that of their sum; the formula
    and its terms stand in `kfuzz.numerics.models.attention`.
    """
    return nm.attend(problem)


# A window that no power of two divides, and one that hides all but a query's own key.
WINDOWS: Final = (1, 2, 7, 16, 33)
CAPS: Final = (1.0, 30.0, 50.0)

attention = Operator(
    "attention",
    inputs={
        "q": ks.tensors("B H S D"),
        "k": ks.tensors("B G T D"),
        "v": ks.tensors("B G T D"),
        "mask": ks.tensors("S T", role="mask", optional=True),
        "sinks": ks.tensors("H", role="bias", optional=True),
        "causal": ks.scalar(False, domain=(True,)),
        "scale": ks.scalar(None, domain=(1.0, 0.125)),
        "window": ks.scalar(None, domain=WINDOWS),
        "softcap": ks.scalar(None, domain=CAPS),
    },
    oracle=reference,
    error_model=accept,
    chain=("matmul", "softmax", "matmul"),
    batch="B",
    reduced="T",
    shape_class="G >= 1 and H >= 1 and D >= 1 and H % G == 0",
    # The scores, and keys and values repeated for every head.
    workspaces=("B H S T", "B H T D"),
    usual={"B": 2, "H": 2, "G": 2},
    # What matrix units need: weights as operands in the data's format.
    defaults=Declaration(intermediates="output"),
    algorithms={
        "stored_query": "queries times the scale are rounded to the data's format",
        "unfused": "scaled operands and scores are rounded to the data's format, as in "
        "a chain of library calls",
    },
    **bounded("attention", Structure.INTERVAL),
)

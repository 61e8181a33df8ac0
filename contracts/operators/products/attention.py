"""attention(q, k, v, mask, causal, scale): softmax(scale q k^T + mask) v per head."""

import math
from typing import Any

from kfuzz import numerics as nm
from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure, Tolerance
from kfuzz.core.declaration import Declaration


def reference(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    causal: bool,
    scale: float | None,
    causal_alignment: str = "top_left",
) -> Any:
    """softmax(scale q k^T + mask) v; head h uses the keys of group h // (H / G).

    A row without visible keys has weights 0.
    """
    import torch

    heads, groups = q.shape[1], k.shape[1]
    k = k.repeat_interleave(heads // groups, 1)
    v = v.repeat_interleave(heads // groups, 1)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = scale * (q @ k.transpose(-1, -2))
    if mask is not None:
        scores = scores + mask
    if causal:
        last = k.shape[2] - q.shape[2] if causal_alignment == "bottom_right" else 0
        seen = torch.ones_like(scores, dtype=torch.bool).tril(last)
        scores = scores.masked_fill(~seen, -math.inf)
    void = (scores == -math.inf).all(-1, keepdim=True)
    return torch.softmax(scores, -1).masked_fill(void, 0.0) @ v


def accept(problem: "nm.Problem") -> "nm.Acceptance":
    """Return O +- ((A + |O| r) / (1 - r) + R p|v| + 6u |O|), A = p rho |v|.

    rho bounds the relative error of a weight, r that of their sum; the formula
    and its terms stand in `kfuzz.numerics.models.attention`.
    """
    return nm.attend(problem)


attention = Operator(
    "attention",
    inputs={
        "q": ks.tensors("B H S D"),
        "k": ks.tensors("B G T D"),
        "v": ks.tensors("B G T D"),
        "mask": ks.tensors("S T", role="mask", optional=True),
        "causal": ks.scalar(False, domain=(True,)),
        "scale": ks.scalar(None, domain=(1.0, 0.125)),
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
    tolerance=Tolerance(
        Structure.INTERVAL,
        "(A + |O| r) / (1 - r) + R p|v| + 6u |O|, A = p rho |v|, r = p rho + R, "
        "rho = expm1(Es + 6u |s - m| + 5u + 6u (ceil(T/16) - 1)), "
        "Es = scale (R + 6u) |q||k|^T + 5u (|scale q k^T| + |mask|); + u_o p|v| "
        "where weights are stored in the output's format",
        "errors of the scores, of exp, of online rescaling in tiles of 16 keys or "
        "more, shared by numerator and denominator; of the product with v in the "
        "declared accumulator; of the division",
    ),
    special_values="a visible NaN or +Inf score makes its row NaN; -Inf hides a key; "
    "a row without visible keys is 0 or NaN as masked_row says; where a hidden key or "
    "value is not finite nothing is compared: some kernels multiply it by 0, others "
    "never read it",
)

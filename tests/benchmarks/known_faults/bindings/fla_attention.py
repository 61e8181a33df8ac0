"""Attention of flash-linear-attention, decoding one token for each sequence."""

import torch

import kfuzz
from kfuzz import strategies as ks
from tests.benchmarks.known_faults.bindings.released import call, first

_DECODING = ("ops.attn.decoding", "ops.forgetting_attn.decoding")
_SIZES = "B >= 1 and B <= 4 and T >= 1 and T <= 80 and H >= 1 and H <= 2 and K >= 1"


def _decoded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = (k * q.unsqueeze(1)).sum(-1)
    weights = torch.softmax(scores, 1)
    return (weights.unsqueeze(-1) * v).sum(1)


_heads = {
    "q": ks.tensors("B H K"),
    "k": ks.tensors("B T H K"),
    "v": ks.tensors("B T H V"),
}
decoding = kfuzz.Operator(
    "decoding",
    inputs=_heads,
    oracle=_decoded,
    shape_class=f"{_SIZES} and K <= 32 and V >= 1 and V <= 32",
)
decoding_of_wide_values = kfuzz.Operator(
    "decoding_of_wide_values",  # more than one block of values
    inputs=_heads,
    oracle=_decoded,
    shape_class=f"{_SIZES} and K <= 16 and V >= 257 and V <= 300",
)


def _decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    batch, steps = k.shape[:2]
    ends = torch.arange(batch + 1, device=q.device) * steps
    packed: torch.Tensor = call(
        first("attn_decoding_one_step", *_DECODING),
        q=q.unsqueeze(0),
        k=k.flatten(0, 1).unsqueeze(0),
        v=v.flatten(0, 1).unsqueeze(0),
        # 0 keeps everything; the first releases take no None.
        g=torch.zeros(1, batch * steps, q.shape[1], device=q.device),
        scale=1.0,
        cu_seqlens=ends,
    )
    return packed.squeeze(0)


# Views are read as if they were contiguous in the fixed releases too, up to 0.5.2.
kfuzz.kernel(
    decoding,
    dtypes=("float32",),
    layouts="contiguous",
    nonfinite="undefined",
    name="attention_decoding",
)(_decode)
kfuzz.kernel(
    decoding_of_wide_values,
    dtypes=("float32",),
    layouts="contiguous",
    nonfinite="undefined",
    name="attention_decoding_wide",
)(_decode)

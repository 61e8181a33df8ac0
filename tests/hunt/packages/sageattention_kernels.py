"""sageattention 1.0.6 as released: attention with queries and keys of 8 bits.

Its error is that of 8 bits, which it states no bound for: values are held to a
tenth, and queries and keys are small ones.
"""

import torch
import torch.nn.functional as F
from sageattention import sageattn

import kfuzz
from kfuzz import strategies as ks
from kfuzz.numerics import modelling as nm

PACKAGE = "sageattention"
VERSION = "1.0.6"
NEEDS = ()


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def _near(problem: nm.Problem) -> nm.Acceptance:
    """Within a tenth: 8 bits of each score, of which none is above 128."""
    return nm.around(problem, _attention(**problem.tensors), 0.1)


attention = kfuzz.Operator(
    "attention_of_8_bits",
    inputs={
        "q": ks.tensors("B H S D", within=(-4, 4)),
        "k": ks.tensors("B H T D", within=(-4, 4)),
        "v": ks.tensors("B H T D", within=(-1, 1)),
    },
    oracle=_attention,
    error_model=_near,
    shape_class="D == 64 and S >= 1 and T >= 1 and T <= 512",
)
kfuzz.kernel(attention, name="sageattention_keys", layouts="contiguous")(
    lambda q, k, v: sageattn(q, k, v, smooth_k=False)
)
kfuzz.kernel(attention, name="sageattention", layouts="contiguous")(
    lambda q, k, v: sageattn(q, k, v)
)

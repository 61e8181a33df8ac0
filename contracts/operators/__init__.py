"""The operators: what kernels compute, each with oracle and error model."""

from typing import Final

from kfuzz.contracts.language import Operator
from kfuzz.contracts.operators.amax import amax
from kfuzz.contracts.operators.cross_entropy import cross_entropy
from kfuzz.contracts.operators.embedding import embedding
from kfuzz.contracts.operators.gather import gather
from kfuzz.contracts.operators.layer_norm import layer_norm
from kfuzz.contracts.operators.matmul import matmul
from kfuzz.contracts.operators.relu import relu
from kfuzz.contracts.operators.softmax import softmax
from kfuzz.contracts.operators.sum import sum_ as sum

__all__ = [
    "OPERATORS",
    "amax",
    "cross_entropy",
    "embedding",
    "gather",
    "layer_norm",
    "matmul",
    "relu",
    "softmax",
    "sum",
]

OPERATORS: Final[dict[str, Operator]] = {
    o.name: o
    for o in (
        amax,
        cross_entropy,
        embedding,
        gather,
        layer_norm,
        matmul,
        relu,
        softmax,
        sum,
    )
}

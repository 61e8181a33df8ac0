"""rope_sections(x, cos, sin, first, second): angles of time, height and width."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.elementwise.rope import turned
from kfuzz.contracts.prose import bounded


def reference(x: Any, cos: Any, sin: Any, *, first: int, second: int) -> Any:
    """Rope whose pairs i take their angles from one of three tables.

    Pairs below `first` from the first table, `second` further ones from the second,
    the rest from the third; pairs are columns i and i + E, as in Qwen2-VL (2024).
    """
    import torch

    def joined(table: Any) -> Any:
        ends = (0, first, first + second, table.shape[-1])
        parts = [table[i, ..., ends[i] : ends[i + 1]] for i in range(3)]
        return torch.cat(parts + parts, -1).unsqueeze(-2)

    return x * joined(cos) + turned(x, interleaved=False) * joined(sin)


rope_sections = Operator(
    "rope_sections",
    inputs={
        "x": ks.tensors("B S H D"),
        "cos": ks.tensors("M B S E", role="weight"),
        "sin": ks.tensors("M B S E", role="weight"),
        "first": ks.scalar(1, domain=(2, 4)),
        "second": ks.scalar(1, domain=(0, 3)),
    },
    oracle=reference,
    homogeneous={"x": 1, "cos sin": 1},
    shape_class="M == 3 and D % 2 == 0 and E == D // 2 and first + second <= E",
    usual={"M": 3},
    **bounded("rope_sections", Structure.INTERVAL),
)

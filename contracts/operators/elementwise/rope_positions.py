"""rope_positions(x, cos, sin, positions, interleaved, part): of leading columns."""

from typing import Any

from kfuzz import strategies as ks
from kfuzz.contracts.operator import Operator, Structure
from kfuzz.contracts.operators.elementwise.rope import turned
from kfuzz.contracts.prose import bounded


def reference(
    x: Any, cos: Any, sin: Any, positions: Any, *, interleaved: bool, part: int
) -> Any:
    """Rope of the leading D / part columns, by the rows of the tables at positions.

    Pairs are columns i and i + E (GPT-NeoX), or 2i and 2i + 1 if interleaved (GPT-J);
    other columns stay as they are.
    """
    import torch

    wide = 2 * cos.shape[-1]
    rows = [t[positions].unsqueeze(-2) for t in (cos, sin)]
    c, s = (
        t.repeat_interleave(2, -1) if interleaved else torch.cat((t, t), -1)
        for t in rows
    )
    head, rest = x[..., :wide], x[..., wide:]
    made = head * c + turned(head, interleaved=interleaved) * s
    return torch.cat((made, rest), -1)


rope_positions = Operator(
    "rope_positions",
    inputs={
        "x": ks.tensors("B S H D"),
        "cos": ks.tensors("T E", role="weight"),
        "sin": ks.tensors("T E", role="weight"),
        "positions": ks.indices("B S", below="T"),
        "interleaved": ks.scalar(False, domain=(True,)),
        "part": ks.scalar(1, domain=(2, 4)),
    },
    oracle=reference,
    homogeneous={"x": 1, "cos sin": 1},
    batch="B",
    shape_class="D % (2 * part) == 0 and E == D // (2 * part)",
    **bounded("rope_positions", Structure.INTERVAL),
)

"""From the comparison of one output to a map of its errors."""

import base64
import math
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from kfuzz.core.error_map import (
    EXACT,
    GREATEST,
    STEPS,
    UNBOUNDED,
    UNDECIDED,
    WITHIN,
    ErrorMap,
    block_of,
)
from kfuzz.numerics.comparator.compare import Comparison, Outcome

# Smaller ratios share this code.
_LEAST: Final = EXACT + 1


def error_map(output: str, made: Comparison) -> ErrorMap | None:
    """Return the map of one output of a single case.

    Returns:
        None if the output has no element.
    """
    shape = tuple(made.outcomes.shape[1:])
    if not math.prod(shape):
        return None
    columns = shape[-1] if shape else 1
    down, across = block_of(math.prod(shape) // columns), block_of(columns)
    codes = _codes(made).reshape(-1, columns)
    rows, wide = -(-codes.shape[0] // down), -(-columns // across)
    codes = pad(codes, (0, wide * across - columns, 0, rows * down - codes.shape[0]))
    cells = codes.view(rows, down, wide, across).amax((1, 3)).to(torch.uint8)
    text = base64.b64encode(cells.cpu().contiguous().numpy().tobytes()).decode()
    return ErrorMap(output, shape, rows, wide, text)


def _codes(made: Comparison) -> Tensor:
    """Return the code of every element, int32, without the member dimension."""
    outcomes, ratio = made.outcomes[0], made.ratio[0]
    exact = ratio <= 0.0
    level = torch.log2(torch.where(exact, 1.0, ratio)).mul(STEPS).add(WITHIN)
    level = level.nan_to_num(GREATEST, GREATEST, _LEAST)
    inside = level.ceil().clamp(_LEAST, WITHIN)
    outside = level.round().clamp(WITHIN + 1, GREATEST)
    codes = torch.where(exact, float(EXACT), inside)
    numbered = (outcomes == Outcome.VALUE) & ~exact
    if made.unrelated is not None:
        numbered = numbered & ~made.unrelated[0]
    missed = torch.where(numbered, outside, float(UNBOUNDED))
    codes = torch.where(outcomes >= Outcome.VALUE, missed, codes)
    codes = torch.where(outcomes == Outcome.UNDECIDED, float(UNDECIDED), codes)
    return codes.to(torch.int32)
